//! The peers, one file each. Every function sets its peer up the way its own documents advise for
//! throughput, keeps everything, and gives the time of one run.

pub(crate) mod bus;
pub(crate) mod crossbeam;
pub(crate) mod disruptor;
pub(crate) mod flume;
pub(crate) mod iceoryx2;
pub(crate) mod kanal;
pub(crate) mod keyexpr;
pub(crate) mod model_trie;
pub(crate) mod park;
pub(crate) mod rtrb;
pub(crate) mod std_channel;
pub(crate) mod tokio_broadcast;
pub(crate) mod zenoh;
