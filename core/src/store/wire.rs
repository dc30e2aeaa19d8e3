//! Numbers and texts as bytes: LEB128, and lengths before what they count.

/// Appends a number, 7 bits a byte, least first.
pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends bytes behind their length.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Takes what was put, in the same order; `None` where the bytes do not say that.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that are left.
    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                // One number has one form, the shortest.
                return (byte != 0 || shift == 0).then_some(number);
            }
        }
        None
    }

    /// A number that fits.
    pub(super) fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        self.number()?.try_into().ok()
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.small()?;
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        std::str::from_utf8(self.bytes()?).ok().map(str::to_owned)
    }

    /// All that is left, as text.
    pub(super) fn rest(&mut self) -> Option<String> {
        std::str::from_utf8(std::mem::take(&mut self.rest)).ok().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_and_have_one_form() {
        for number in [0, 1, 127, 128, 300, 1 << 32, u64::MAX - 1, u64::MAX] {
            let mut bytes = vec![];
            put_number(&mut bytes, number);
            let mut reader = Reader::new(&bytes);
            assert_eq!((reader.number(), reader.len()), (Some(number), 0));
            assert_eq!(Reader::new(&bytes[..bytes.len() - 1]).number(), None);
        }
        assert_eq!(Reader::new(&[0x80, 0]).number(), None);
        assert_eq!(Reader::new(&[0xff; 9]).number(), None);
        let too_large = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert_eq!(Reader::new(&too_large).number(), None);
        assert_eq!(Reader::new(&[0xac, 2]).small::<u8>(), None);
    }

    #[test]
    fn a_length_beyond_the_end_is_refused() {
        assert_eq!(Reader::new(&[3, 1, 2]).bytes(), None);
        assert_eq!(Reader::new(&[2, 1, 2]).bytes(), Some(&[1, 2][..]));
        assert_eq!(Reader::new(&[1, 0xff]).text(), None);
    }
}
