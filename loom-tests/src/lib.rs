//! Loom models of slipring's lock-free structures, run on the production source by `cargo loom`.
