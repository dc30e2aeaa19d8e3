//! Any bytes as a cursor journal's file, and as the body of one of its batches: decoded or refused,
//! and what was decoded reads back as written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slipring::internals::decode_any_journal;

fuzz_target!(|bytes: &[u8]| decode_any_journal(bytes));
