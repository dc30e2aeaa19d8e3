//! Any bytes as a filter expression: refused inside the text, or printed so that it reads back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slipring::filter::{Filter, FilterLimits};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Filter::parse(text) {
        Ok(filter) => {
            let printed = filter.to_string();
            let read = Filter::parse_within(&printed, FilterLimits::NONE);
            assert_eq!(read.as_ref(), Ok(&filter), "printed as {printed}");
            // The message that has every key, empty, and its complement.
            let message: Vec<_> = filter.keys().map(|key| (key, "")).collect();
            assert_ne!(filter.matches(&message), filter.clone().not().matches(&message));
        }
        Err(error) => assert!(text.is_char_boundary(error.position), "{error}"),
    }
});
