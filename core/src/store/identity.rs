//! The file `store`: what makes a directory a store. It is written before the shards are made, and
//! once more when all of them are there: from then on, one that is not has been lost.
//!
//! ```text
//! 0 magic "SLIPSTOR" | 8 version u32 | 12 shards u32 | 16 store u128 | 32 complete u32
//! zeros | 60 crc u32
//! ```

use super::batch::checksum;
use super::error::StoreError;
use super::record::{long, word};
use super::segment::StoreId;
use crate::fs::{Fs, OpenHow, read_full_at, write_all_at};
use std::io::{self, IoSlice};
use std::path::Path;

const MAGIC: &[u8; 8] = b"SLIPSTOR";
const VERSION: u32 = 1;
const LEN: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) id: StoreId,
    pub(crate) shards: u32,
    /// Whether every shard was made.
    pub(crate) complete: bool,
}

impl Identity {
    fn encode(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.shards.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.id.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&u32::from(self.complete).to_le_bytes());
        let crc = checksum(0, &bytes[..LEN - 4]);
        bytes[LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let bytes = bytes.first_chunk::<LEN>().ok_or("the file `store` is too short")?;
        if !bytes.starts_with(MAGIC) || word(bytes, LEN - 4) != checksum(0, &bytes[..LEN - 4]) {
            return Err("the file `store` is damaged");
        }
        if word(bytes, 8) != VERSION {
            return Err("it was written by a later version");
        }
        let id = StoreId(u128::from(long(bytes, 16)) | u128::from(long(bytes, 24)) << 64);
        Ok(Self { id, shards: word(bytes, 12), complete: word(bytes, 32) == 1 })
    }

    /// That of the store in this directory; `None` if it is not one yet.
    pub(crate) fn read(fs: &dyn Fs) -> Result<Option<Self>, StoreError> {
        let file = match fs.open(Path::new("store"), OpenHow::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            outcome => outcome?,
        };
        let mut bytes = [0; LEN];
        let read = read_full_at(&*file, &mut bytes, 0)?;
        Self::decode(&bytes[..read]).map(Some).map_err(|why| StoreError::Incompatible(why.into()))
    }

    /// Makes the directory this store; durable when it returns.
    pub(crate) fn store(self, fs: &dyn Fs) -> io::Result<()> {
        let temporary = Path::new("store.tmp");
        let file = match fs.open(temporary, OpenHow::CreateNew) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs.remove(temporary)?;
                fs.open(temporary, OpenHow::CreateNew)?
            }
            outcome => outcome?,
        };
        write_all_at(&*file, &mut [IoSlice::new(&self.encode())], 0)?;
        file.sync_data()?;
        fs.rename(temporary, Path::new("store"))?;
        fs.sync_dir(Path::new(""))
    }
}
