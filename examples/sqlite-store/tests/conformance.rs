//! The suite that every store must pass.

use slipring::store::conformance;
use slipring_sqlite_store::SqliteStore;

#[test]
fn it_conforms() {
    for (name, check) in conformance::CHECKS {
        println!("conformance: {name}");
        let dir = tempfile::tempdir().unwrap();
        check(&|| Box::new(SqliteStore::open(&dir.path().join("messages.db"), 2).unwrap()));
    }
}

#[test]
fn it_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("messages.db");
    conformance::run_durable(&|| Box::new(SqliteStore::open(&path, 2).unwrap()));
}
