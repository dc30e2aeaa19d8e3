//! Criterion benchmarks of slipring itself; the peers are in `compare/`.
