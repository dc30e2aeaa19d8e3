//! The job that outlives its process: with `--data DIR` every departure is stored once and handled
//! once, however often the program is killed in between.
//!
//! What is published is in the broker's directory. A line's number is its message's id, so the next
//! run sees which are there already. What is handled is a line in the file `handled`: the handler
//! gets what it has not settled again, and knows by the id what it had done before it was killed.

use crate::input::{self, Flight, Input};
use slipring::store::{DiskStore, SyncPolicy};
use slipring::{Broker, DeliveryMode, NewMessage, PublishError, RecvError, Start, TryRecvError};
use std::collections::HashSet;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Messages that are published, or handled, between two lines of progress.
const STEP: usize = 500;

/// A killed process loses nothing under any policy, so the disk need not be waited for.
const SYNC: SyncPolicy = SyncPolicy::Interval(Duration::from_millis(100));

pub(crate) fn run(dir: &Path, file: &Path) -> Result<(), Box<dyn Error>> {
    let broker = Broker::builder().disk(DiskStore::builder().sync(SYNC)).open(dir)?;
    let input = input::read(&broker, file)?;
    let stored = stored(&broker)?;
    let before = stored.len();

    let mut log = HandledLog::open(&dir.join("handled"))?;
    let mut left = input.flights.len() - log.ids.len();
    let (told, progress) = mpsc::channel();
    let _handler = broker
        .subscription("flights/**")
        .name("departures")
        .delivery(DeliveryMode::AtLeastOnce)
        .start(Start::Earliest)
        .handler(move |message| -> io::Result<()> {
            // An error here is a reason to try again: nothing is settled that is not written.
            if log.note(message.id().own().unwrap_or_default())? {
                // Nobody listens only if the main thread has gone.
                let _ = told.send(());
            }
            Ok(())
        })?;

    let Input { flights, bad_lines } = input;
    let published = thread::spawn(move || publish(&flights, &stored));
    while left > 0 {
        progress.recv()?;
        left -= 1;
        if left.is_multiple_of(STEP) {
            println!("{left} left to handle");
        }
    }
    let published = published.join().map_err(|_| "the publisher panicked")??;
    println!("stored {}: {published} by this run", before + published);
    println!("bad lines: {bad_lines}");
    Ok(())
}

/// The ids of what is stored already.
fn stored(broker: &Broker) -> Result<HashSet<String>, RecvError> {
    let start = Start::Earliest;
    let Ok(mut all) = broker.subscription("flights/**").start(start).open() else {
        return Err(RecvError::Closed);
    };
    let mut ids = HashSet::new();
    loop {
        match all.try_recv() {
            Ok(message) => ids.extend(message.id().own().map(str::to_owned)),
            Err(TryRecvError::Empty) => return Ok(ids),
            Err(TryRecvError::Recv(error)) => return Err(error),
            Err(_) => return Err(RecvError::Closed),
        }
    }
}

/// Publishes what is not stored yet; how much that was.
fn publish(flights: &[Flight], stored: &HashSet<String>) -> Result<usize, PublishError> {
    let mut published = 0;
    for flight in flights {
        let id = flight.line.to_string();
        if stored.contains(&id) {
            continue;
        }
        let attributes: Vec<(&str, &str)> =
            flight.attributes.iter().map(|(key, value)| (&**key, &**value)).collect();
        let message = NewMessage::new(&flight.payload).id(&id).attributes(&attributes);
        flight.topic.publish(NewMessage { key: flight.key.as_deref(), ..message })?;
        published += 1;
        if published % STEP == 0 {
            println!("published {published}");
        }
    }
    Ok(published)
}

/// Which messages have been handled: a line each in a file.
struct HandledLog {
    file: File,
    ids: HashSet<String>,
}

impl HandledLog {
    fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // What a killed process left of a line was not acknowledged.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        Ok(Self { file, ids: text[..whole].lines().map(str::to_owned).collect() })
    }

    /// Notes a message as handled. False if it was before.
    fn note(&mut self, id: &str) -> io::Result<bool> {
        if !self.ids.insert(id.to_owned()) {
            return Ok(false);
        }
        self.file.write_all(format!("{id}\n").as_bytes())?;
        Ok(true)
    }
}
