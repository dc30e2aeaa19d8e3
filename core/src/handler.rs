//! A user's handler, together with the loop over what is queued for it: compiled for each handler, so
//! that a message costs no more than in a poll.

use crate::breaker::Breaker;
use crate::clock::Clock;
use crate::contain::drop_quietly;
use crate::error::RecvError;
use crate::handled::{Handled, HandlerResult};
use crate::handler_error::{Listeners, panic_text};
use crate::inbox::InboxState;
use crate::lane::Next;
use crate::message::{Block, Message};
use crate::receiver::{Failed, Receiver};
use crate::sync::Arc;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A handler as its worker has it.
pub(crate) trait Handler: Send {
    /// Calls the handler with up to `most` messages, until it fails with one or the subscription ends.
    /// The place of each is free as soon as the handler has it. Where messages are settled, those that
    /// it succeeds with are. Unwinds if the handler does. What there is instead of a message, if that
    /// comes first.
    fn run(&mut self, receiver: &mut Receiver, most: usize, run: &mut Run) -> Result<(), Next>;
}

/// What has become of some messages in a row; stays when the handler unwinds.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// Messages that the handler was called with.
    pub(crate) count: usize,
    /// Address of the last of them.
    pub(crate) last: usize,
    /// What the handler has made of that, if it was no success.
    pub(crate) failed: Option<Handled>,
    /// The same of a handler that gets several at once: all that were no success, in their order.
    pub(crate) failures: Vec<Failed>,
    /// Whether it has panicked with what it has failed with.
    pub(crate) panicked: bool,
}

impl Run {
    /// Calls `handler`, a success is `true`.
    #[inline(always)]
    fn call<R: HandlerResult>(
        &mut self,
        handler: &mut impl FnMut(&Message<'_>) -> R,
        message: &Message<'_>,
    ) -> bool {
        self.count += 1;
        self.last = message.record.address();
        match handler(message).into_handled() {
            Handled::Success => true,
            failed => {
                self.failed = Some(failed);
                false
            }
        }
    }

    /// The handler has panicked with the last message, which is a reason to try again.
    pub(crate) fn panic_with_last(&mut self, panic: Box<dyn Any + Send>) {
        self.failed = Some(Handled::retry(panic_text(&*panic)));
        self.panicked = true;
        drop_quietly(panic);
    }

    /// How many messages it has failed with.
    pub(crate) fn count_failed(&self) -> usize {
        self.failures.len() + usize::from(self.failed.is_some())
    }

    /// Tells of what it has failed with, and settles that; false if the breaker says to pause.
    pub(crate) fn note(
        &self,
        subscription: u64,
        receiver: &mut Receiver,
        listeners: &mut Listeners,
        breaker: &mut Breaker,
        clock: &Clock,
    ) -> bool {
        if !self.failures.is_empty() {
            return self.note_failures(subscription, receiver, listeners, breaker, clock);
        }
        if self.count > usize::from(self.failed.is_some()) {
            breaker.record(true, || clock.now());
        }
        let Some(failed) = &self.failed else { return true };
        if let Handled::Retry { reason } | Handled::DeadLetter { reason } = failed {
            listeners.failed(subscription, &receiver.message(self.last), reason, self.panicked);
        }
        receiver.settle(self.last, failed);
        breaker.record(false, || clock.now())
    }

    /// The same of messages that were handled together. In which order they were, nobody knows: for the
    /// breaker it is theirs.
    fn note_failures(
        &self,
        subscription: u64,
        receiver: &mut Receiver,
        listeners: &mut Listeners,
        breaker: &mut Breaker,
        clock: &Clock,
    ) -> bool {
        let mut next = 0;
        let mut goes_on = true;
        for failed in &self.failures {
            if let Handled::Retry { reason } | Handled::DeadLetter { reason } = &failed.handled {
                let message = receiver.message_at(failed.lease, failed.address);
                listeners.failed(subscription, &message, reason, self.panicked);
            }
            receiver.settle_failed(failed);
            if failed.at > next {
                breaker.record(true, || clock.now());
            }
            next = failed.at + 1;
            goes_on = breaker.record(false, || clock.now());
        }
        if next < self.count {
            goes_on = breaker.record(true, || clock.now());
        }
        goes_on
    }
}

impl<R: HandlerResult, F: FnMut(&Message<'_>) -> R + Send> Handler for F {
    fn run(&mut self, receiver: &mut Receiver, most: usize, run: &mut Run) -> Result<(), Next> {
        if receiver.is_settled_later() {
            return receiver.handle(most, |message| run.call(self, message));
        }
        let inbox = Arc::clone(&receiver.inbox);
        let polled = receiver.poll::<true, false>(most, |block| {
            run.call(self, &block.first()) && inbox.state() != InboxState::Ended
        });
        match polled {
            Ok(0) => Err(Next::Empty),
            Ok(_) => Ok(()),
            Err(RecvError::Lagged(lost)) => Err(Next::Lagged(lost)),
            Err(RecvError::Store(fault)) => Err(Next::Failed(fault)),
            // Nothing else is told by a poll.
            Err(_) => Err(Next::Empty),
        }
    }
}

/// A handler that gets several messages at once, and says which it has failed with, in rising order.
pub(crate) struct BlockHandler<F>(pub(crate) F);

impl<F: FnMut(&Block<'_>) -> Vec<(usize, Handled)> + Send> Handler for BlockHandler<F> {
    fn run(&mut self, receiver: &mut Receiver, most: usize, run: &mut Run) -> Result<(), Next> {
        let Run { count, failures, panicked, .. } = run;
        receiver.handle_blocks(most, failures, |block| {
            let messages = block.records().len();
            *count += messages;
            catch_unwind(AssertUnwindSafe(|| (self.0)(block))).unwrap_or_else(|panic| {
                *panicked = true;
                let retry = |at| (at, Handled::retry(panic_text(&*panic)));
                let failures = (0..messages).map(retry).collect();
                drop_quietly(panic);
                failures
            })
        })
    }
}
