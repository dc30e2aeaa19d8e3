//! Subscriptions by name: listed, described, sought, deleted.

use crate::acker::Acker;
use crate::broker::Broker;
use crate::config::{DeliveryMode, Start};
use crate::error::{ConfigError, PublishError};
use crate::inbox::InboxState;
use crate::letters::DeadLetters;
use crate::registry::Known;
use crate::sync::Arc;
use std::time::Instant;

/// See [`Broker::describe_subscription`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriptionDescription {
    /// Its name.
    pub name: String,
    /// Its patterns.
    pub patterns: Vec<String>,
    /// When a message counts as delivered.
    pub delivery: DeliveryMode,
    /// Whether it has a consumer.
    pub is_online: bool,
    /// Messages that were not taken yet.
    pub queued: u64,
    /// Messages that were taken and are not settled, those that wait for another attempt included.
    pub unsettled: u64,
}

impl Broker {
    /// Names of the subscriptions that have one, in order.
    ///
    /// # Errors
    /// [`ConfigError::Unavailable`].
    pub fn subscriptions(&self) -> Result<Vec<String>, ConfigError> {
        self.inner.engine.check()?;
        let control = self.inner.control();
        let mut names: Vec<_> = control.names.keys().map(ToString::to_string).collect();
        drop(control);
        names.sort_unstable();
        Ok(names)
    }

    /// What is known of the subscription `name`.
    ///
    /// # Errors
    /// [`ConfigError::UnknownSubscription`].
    pub fn describe_subscription(
        &self,
        name: &str,
    ) -> Result<SubscriptionDescription, ConfigError> {
        self.inner.engine.check()?;
        let mut control = self.inner.control();
        let known = control.find(name).ok_or(ConfigError::UnknownSubscription)?;
        Ok(SubscriptionDescription {
            name: name.to_owned(),
            patterns: known.inbox.interest.patterns.iter().map(ToString::to_string).collect(),
            delivery: known.inbox.delivery,
            is_online: !known.is_offline,
            queued: known.inbox.depth(),
            unsettled: known.acks.as_ref().map_or(0, |acks| acks.unsettled()),
        })
    }

    /// Deletes the subscription `name`, with all that it has not settled. Its consumer, if it has one,
    /// gets [`Disconnected`](crate::RecvError::Disconnected); a handler is unsubscribed, and may run
    /// to its end.
    ///
    /// # Errors
    /// [`ConfigError::UnknownSubscription`].
    pub fn delete_subscription(&self, name: &str) -> Result<(), ConfigError> {
        self.inner.engine.check()?;
        // Nobody makes one of the same name, or moves this one, before it is gone from all places.
        let moving = self.inner.moving();
        let acks = self.inner.control().find(name).and_then(|known| known.acks.clone());
        if let Some(acks) = acks {
            // Written down first: if that fails, nothing has changed.
            let forgotten = self.inner.forget_subscription(name, &acks);
            forgotten.map_err(PublishError::from)?;
        }
        let mut control = self.inner.control();
        let id = control.find(name).map(|known| known.inbox.id);
        let known = id.and_then(|id| self.inner.forget(control, id));
        drop(moving);
        let Known { inbox, task, acks, is_offline } =
            known.ok_or(ConfigError::UnknownSubscription)?;
        self.inner.engine.silence(&inbox);
        if let Some(acks) = acks {
            acks.hand_over();
        }
        inbox.advance(InboxState::Disconnected);
        match task.and_then(|task| task.upgrade()) {
            Some(task) => _ = task.end(Some(Instant::now())),
            None if is_offline => self.inner.end_offline(&inbox),
            None => inbox.wake_all(),
        }
        Ok(())
    }

    /// Lets the subscription `name`, which has no consumer at the moment, go on from `start`: see
    /// [`Subscription::seek`](crate::Subscription::seek).
    ///
    /// # Errors
    /// [`ConfigError::UnknownSubscription`], [`ConfigError::SubscriptionInUse`],
    /// [`ConfigError::AtMostOnce`]; [`ConfigError::Unavailable`], also when the broker has closed.
    pub fn seek_subscription(&self, name: &str, start: Start) -> Result<(), ConfigError> {
        self.inner.engine.check()?;
        let (inbox, acks) = {
            let mut control = self.inner.control();
            let known = control.find(name).ok_or(ConfigError::UnknownSubscription)?;
            let acks = known.acks.clone().ok_or(ConfigError::AtMostOnce)?;
            // Nobody else becomes its consumer meanwhile.
            if !std::mem::take(&mut known.is_offline) {
                return Err(ConfigError::SubscriptionInUse);
            }
            (Arc::clone(&known.inbox), acks)
        };
        let sought = self.inner.succeed(&inbox, &acks, Some(start), true).map_err(|fault| {
            // Nothing has changed: it may have a consumer again.
            if let Some(known) = self.inner.control().subscriptions.get_mut(&inbox.id) {
                known.is_offline = true;
            }
            PublishError::from(fault)
        })?;
        if sought.is_none() {
            if self.inner.engine.is_closed() {
                return Err(ConfigError::Unavailable(PublishError::Closed));
            }
            let is_there = self.inner.control().find(name).is_some();
            // Somebody has deleted it, or taken it over.
            return Err(if is_there {
                ConfigError::SubscriptionInUse
            } else {
                ConfigError::UnknownSubscription
            });
        }
        self.inner.end_offline(&inbox);
        Ok(())
    }

    /// Settles messages of the subscription `name` by their ack ids, until it gets another consumer.
    ///
    /// # Errors
    /// [`ConfigError::UnknownSubscription`], [`ConfigError::AtMostOnce`].
    pub fn acker(&self, name: &str) -> Result<Acker, ConfigError> {
        self.inner.engine.check()?;
        let mut control = self.inner.control();
        let known = control.find(name).ok_or(ConfigError::UnknownSubscription)?;
        known.acks.as_ref().map(Acker::new).ok_or(ConfigError::AtMostOnce)
    }

    /// The dead letters in `topic`: `$dlq/` and a subscription's name, where it did not ask for
    /// another.
    pub fn dead_letters(&self, topic: &str) -> DeadLetters {
        DeadLetters::new(Arc::clone(&self.inner), topic)
    }
}
