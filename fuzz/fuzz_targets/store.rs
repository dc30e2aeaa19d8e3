//! Any bytes as each file of the durable store. The checks are made to pass, since no input would
//! find one that does; so whatever gets past them by malice is what is tried.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slipring::store::internals;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    match kind % 4 {
        0 => {
            internals::records(bytes);
        }
        1 => {
            internals::index(bytes);
        }
        2 => {
            internals::superblock(bytes);
        }
        // The first page is mostly zeros: they are not left to chance.
        _ => {
            let mut segment = vec![0; 4096];
            let head = bytes.len().min(80);
            segment[..head].copy_from_slice(&bytes[..head]);
            segment[..8].copy_from_slice(b"SLIPSEG1");
            segment[8..16].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
            segment.extend_from_slice(&bytes[head..]);
            internals::segment(&segment);
        }
    }
});
