//! Any bytes as an ack id: refused inside the text, or printed as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slipring::AckId;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match text.parse::<AckId>() {
        Ok(id) => assert_eq!(id.to_string(), text),
        Err(error) => assert!(error.position <= text.len(), "{error}"),
    }
});
