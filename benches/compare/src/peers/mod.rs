//! The peers, one file each. Every function sets its peer up the way its own documents advise for
//! throughput, keeps everything, and gives the time of one run.

#[cfg(feature = "peers")]
pub(crate) mod bus;
#[cfg(feature = "peers")]
pub(crate) mod crossbeam;
#[cfg(feature = "peers")]
pub(crate) mod disruptor;
#[cfg(feature = "peers")]
pub(crate) mod flume;
#[cfg(feature = "peers")]
pub(crate) mod iceoryx2;
#[cfg(feature = "jetstream")]
pub(crate) mod jetstream;
#[cfg(not(feature = "jetstream"))]
#[path = "jetstream_absent.rs"]
pub(crate) mod jetstream;
#[cfg(feature = "peers")]
pub(crate) mod kanal;
#[cfg(feature = "peers")]
pub(crate) mod keyexpr;
#[cfg(feature = "peers")]
pub(crate) mod model_trie;
pub(crate) mod park;
#[cfg(feature = "peers")]
pub(crate) mod rtrb;
#[cfg(feature = "peers")]
pub(crate) mod std_channel;
#[cfg(feature = "peers")]
pub(crate) mod tokio_broadcast;
#[cfg(feature = "peers")]
pub(crate) mod zenoh;
