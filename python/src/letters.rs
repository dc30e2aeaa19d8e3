//! The dead letters in a topic.

use crate::broker::Broker;
use crate::errors::raise;
use crate::message::Message;
use crate::signals::interruptible;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use slipring_core::{ConfigError, DeadLetters as CoreLetters, Filter};
use std::sync::Arc;

/// The dead letters in one topic: what subscriptions have given up on, from `Broker.dead_letters`.
/// Each has the attributes `slipring.DEAD_LETTER_REASON` and its like.
///
/// Listing reads what the topic's shards retain: it takes time in proportion to that. Letters expire
/// like other messages. What is still there can be listed after the broker has closed.
///
/// >>> import slipring
/// >>> broker = slipring.open()
/// >>> mode = slipring.DeliveryMode.AT_LEAST_ONCE
/// >>> jobs = broker.subscribe("jobs/*", name="mailer", delivery=mode)
/// >>> receipt = broker.publish("jobs/mail", b"no address")
/// >>> jobs.get().dead_letter(reason="no address given")
/// >>> letters = broker.dead_letters("$dlq/mailer")
/// >>> [letter] = letters.list()
/// >>> letter.attributes[slipring.DEAD_LETTER_REASON]
/// 'no address given'
/// >>> letters.redrive(letter), letters.count()
/// (True, 0)
/// >>> bytes(jobs.get())
/// b'no address'
#[pyclass(frozen, weakref, module = "slipring")]
pub(crate) struct DeadLetters {
    letters: Arc<CoreLetters>,
    topic: String,
    broker: Py<Broker>,
}

impl DeadLetters {
    pub(crate) fn new(broker: &Bound<'_, Broker>, topic: &str) -> Self {
        let letters = Arc::new(broker.get().core().dead_letters(topic));
        Self { letters, topic: topic.to_owned(), broker: broker.clone().unbind() }
    }

    /// Looks through the letters, unless the broker cannot be called at all, which they do not tell.
    fn look<R: Send>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&CoreLetters) -> R + Send,
    ) -> PyResult<R> {
        let broker = self.broker.get().core();
        let found = py.detach(|| match broker.describe_topic(&self.topic) {
            Err(ConfigError::Unavailable(error)) => Err(error),
            _ => Ok(look(&self.letters)),
        });
        found.map_err(|error| raise(py, error))
    }
}

fn parse(py: Python<'_>, filter: Option<&str>) -> PyResult<Option<Filter>> {
    filter.map(Filter::parse).transpose().map_err(|error| raise(py, error))
}

#[pymethods]
impl DeadLetters {
    /// The name of the topic.
    #[getter]
    fn topic(&self) -> &str {
        &self.topic
    }

    /// The letters that were neither sent back nor thrown away, in order by partition and offset: at
    /// most `most` of them, and of those alone that the expression `filter` matches.
    #[pyo3(signature = (most=usize::MAX, *, filter=None))]
    fn list(&self, py: Python<'_>, most: usize, filter: Option<&str>) -> PyResult<Vec<Message>> {
        let filter = parse(py, filter)?;
        let letters = self.look(py, |letters| match &filter {
            Some(filter) => letters.list_by(filter, most),
            None => letters.list(most),
        })?;
        Ok(letters.into_iter().map(Message::from).collect())
    }

    /// The letter at `offset` of `partition`, or `None` if it is not in the list.
    fn peek(&self, py: Python<'_>, partition: u32, offset: u64) -> PyResult<Option<Message>> {
        let letter = self.look(py, |letters| letters.peek(partition, offset))?;
        Ok(letter.map(Message::from))
    }

    /// How many letters there are.
    fn count(&self, py: Python<'_>) -> PyResult<usize> {
        self.look(py, CoreLetters::count)
    }

    /// Publishes a letter to the topic that its message was from, as it was, and takes it out of the
    /// list. All subscriptions of that topic get it. False if it is not in the list any more, or is
    /// being sent back by somebody else. Raises what publishing raises; then it stays in the list.
    fn redrive(&self, letter: &Bound<'_, Message>) -> PyResult<bool> {
        let py = letter.py();
        let letters = Arc::clone(&self.letters);
        let letter = letter.get();
        let kept = letter.core().map(|letter| letter.keep());
        // A copy out of a pickle tells where the letter is.
        let (partition, offset) = letter.place();
        let result = interruptible(py, move || {
            let letter = kept.or_else(|| letters.peek(partition, offset));
            letter.map_or(Ok(false), |letter| letters.redrive(&letter.view()))
        })?;
        result.map_err(|error| raise(py, error))
    }

    /// The same for all letters in the list, or for those that the expression `filter` matches; how
    /// many were sent back. Raises with the first that could not be; those before it were.
    #[pyo3(signature = (*, filter=None))]
    fn redrive_all(&self, py: Python<'_>, filter: Option<&str>) -> PyResult<u64> {
        let filter = parse(py, filter)?;
        let letters = Arc::clone(&self.letters);
        let result = interruptible(py, move || match &filter {
            Some(filter) => letters.redrive_by(filter),
            None => letters.redrive_all(),
        })?;
        result.map_err(|error| raise(py, error))
    }

    /// Takes all letters out of the list; how many.
    fn purge(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.letters.purge()).map_err(|error| raise(py, error))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "dead letters cannot be pickled: they are in a broker of this process",
        ))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.broker)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<slipring.DeadLetters in {}>", self.topic.as_str().into_pyobject(py)?.repr()?))
    }
}
