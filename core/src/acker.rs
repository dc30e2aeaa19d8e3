//! Settling messages from elsewhere: by ack id, on any thread.

use crate::acks::Acks;
use crate::error::AckError;
use crate::lease::{AckId, Settle};
use crate::sync::Arc;
use std::time::Duration;

/// Settles messages of one subscription by their ack ids, from any thread. Cheap to clone. It does
/// not keep the subscription.
///
/// ```
/// use slipring::Broker;
///
/// let broker = Broker::in_memory();
/// let mut jobs = broker.subscribe("jobs/*")?;
/// let acker = jobs.acker().expect("it delivers at least once");
/// broker.publish("jobs/mail", "send it")?;
/// let id = jobs.recv()?.ack_id().expect("it is to be settled");
/// let settled = std::thread::spawn(move || acker.ack(&id)).join().expect("no panic")?;
/// assert!(settled);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Acker(Arc<Acks>);

impl Acker {
    pub(crate) fn new(acks: &Arc<Acks>) -> Self {
        Self(Arc::clone(acks))
    }

    /// As [`Message::ack`](crate::Message::ack).
    ///
    /// # Errors
    /// As there; and [`AckError::UnknownAckId`], if the id is of another subscription.
    pub fn ack(&self, id: &AckId) -> Result<bool, AckError> {
        self.0.ack(*id)
    }

    /// As [`Message::nack`](crate::Message::nack).
    ///
    /// # Errors
    /// As there; and [`AckError::UnknownAckId`].
    pub fn nack(&self, id: &AckId, delay: Option<Duration>) -> Result<(), AckError> {
        self.0.nack(*id, delay)
    }

    /// As [`Message::dead_letter`](crate::Message::dead_letter).
    ///
    /// # Errors
    /// As there; and [`AckError::UnknownAckId`].
    pub fn dead_letter(&self, id: &AckId, reason: &str) -> Result<(), AckError> {
        self.0.dead_letter(*id, reason)
    }

    /// As [`Message::modify_ack_deadline`](crate::Message::modify_ack_deadline).
    ///
    /// # Errors
    /// As there; and [`AckError::UnknownAckId`].
    pub fn modify_ack_deadline(&self, id: &AckId, by: Duration) -> Result<(), AckError> {
        self.0.extend(*id, by)
    }

    /// Acknowledges all of `ids`; what became of each, in their order.
    pub fn ack_all(&self, ids: &[AckId]) -> Vec<Result<bool, AckError>> {
        ids.iter().map(|id| self.ack(id)).collect()
    }

    /// Gives all of `ids` back; what became of each, in their order.
    pub fn nack_all(&self, ids: &[AckId], delay: Option<Duration>) -> Vec<Result<(), AckError>> {
        ids.iter().map(|id| self.nack(id, delay)).collect()
    }

    /// Moves the deadlines of all of `ids`; what became of each, in their order.
    pub fn modify_ack_deadlines(&self, ids: &[AckId], by: Duration) -> Vec<Result<(), AckError>> {
        ids.iter().map(|id| self.modify_ack_deadline(id, by)).collect()
    }
}
