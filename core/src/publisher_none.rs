//! What the models have in place of [`publisher`](crate::publisher): of what a broker has, that part
//! of which acknowledgements know.

use crate::around::AroundWaits;
use crate::clock::Clock;
use crate::error::PublishError;
use crate::inbox::Inbox;
use crate::message::{Context, NewMessage};
use crate::shard::Shard;
use crate::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) shards: Box<[Shard]>,
    pub(crate) context: Arc<Context>,
    pub(crate) clock: Clock,
    pub(crate) generation: Generation,
    pub(crate) alarms: Alarms,
    pub(crate) around_waits: AroundWaits,
}

/// A process that does not fork.
#[derive(Debug)]
pub(crate) struct Generation;

impl Generation {
    pub(crate) fn is_over(&self) -> bool {
        false
    }
}

/// Nobody waits for time to pass: a model moves it and looks.
#[derive(Debug)]
pub(crate) struct Alarms;

impl Alarms {
    pub(crate) fn set(&self, _: Duration, _: &Arc<Inbox>) {}
}

/// Where dead letters could be published: nowhere.
#[derive(Debug)]
pub(crate) enum Topic {}

impl Topic {
    pub(crate) fn publish_again(
        &self,
        _: &NewMessage<'_>,
        _: Option<Duration>,
    ) -> Result<(), PublishError> {
        match *self {}
    }
}

pub(crate) fn stable_hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |hash, &byte| hash << 8 ^ u64::from(byte))
}
