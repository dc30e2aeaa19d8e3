//! Settling messages from elsewhere: by ack id, on any thread.

use crate::acks::Acks;
use crate::error::AckError;
use crate::handled::Handled;
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

    /// Settles the message as a handler does that returns `handled`: for those that run elsewhere.
    /// `false` where [`ack`](Self::ack) gives that.
    ///
    /// # Errors
    /// As [`ack`](Self::ack) for a success, and as [`dead_letter`](Self::dead_letter) for a failure.
    ///
    /// ```
    /// use slipring::{Broker, DEAD_LETTER_REASON, DeliveryMode, Handled};
    ///
    /// let broker = Broker::in_memory();
    /// let jobs = broker.subscription("jobs").name("j").delivery(DeliveryMode::AtLeastOnce);
    /// let mut jobs = jobs.max_delivery_attempts(1).open()?;
    /// broker.publish("jobs", "mail")?;
    /// let id = jobs.recv()?.ack_id().expect("it is to be settled");
    /// let acker = jobs.acker().expect("it delivers at least once");
    /// assert!(acker.settle(&id, &Handled::retry("the server is busy"))?);
    /// let letter = &broker.dead_letters("$dlq/j").list(1)[0];
    /// assert_eq!(letter.view().attribute(DEAD_LETTER_REASON), Some("the server is busy"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn settle(&self, id: &AckId, handled: &Handled) -> Result<bool, AckError> {
        self.0.settle_as(*id, handled)
    }

    /// Acknowledges all of `ids`; what became of each, in their order. Costs less than one by one.
    pub fn ack_all(&self, ids: &[AckId]) -> Vec<Result<bool, AckError>> {
        self.0.ack_all(ids)
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
