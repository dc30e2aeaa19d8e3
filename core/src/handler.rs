//! A user's handler, together with the loop over what is queued for it: compiled for each handler, so
//! that a message costs no more than in a poll.

use crate::error::RecvError;
use crate::handled::{Handled, HandlerResult};
use crate::inbox::InboxState;
use crate::lane::Next;
use crate::message::Message;
use crate::receiver::Receiver;
use crate::sync::Arc;

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
