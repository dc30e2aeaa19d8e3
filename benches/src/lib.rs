//! Criterion benchmarks of slipring itself; the peers are in `compare/`.

pub mod routing_input;
pub mod routing_model;
