//! A month of departures, published by two threads to six subscriptions at once.
//!
//! | subscription | what it shows |
//! |---|---|
//! | `jfk` | a handler on a pattern, `flights/JFK/*/*` |
//! | `cancelled` | a handler with a filter |
//! | `one-topic` | a consumer that pulls, on the topic of the first line |
//! | `board` | a slow consumer that wants only the newest: `DropOldest` |
//! | `on-time` | a handler that fails on departures more than two hours late |
//! | `late` | a subscription that comes when all is over, and asks for the last 100 |
//!
//! The whole input is read first, so that the table tells of the broker and not of the JSON parser.

mod input;
mod job;
mod table;

use input::{Flight, Input, name_bad_line};
use serde_json::Value;
use slipring::{
    Broker, DeliveryMode, Message, NewMessage, Overflow, PublishError, RecvError, Start,
    Subscription,
};
use std::collections::hash_map::DefaultHasher;
use std::error::Error;
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::hash::{Hash, Hasher};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};
use table::{Table, Tally, lock};

const USAGE: &str = "\
Publishes departures from two threads to six subscriptions and prints what each of them got.

usage: flights [--file PATH] [--progress] [--data DIR]
  --file PATH   lines of JSON to publish, '-' for the standard input
                (default: examples/data/flights-2013-01.ndjson)
  --data DIR    store and handle each departure once instead, in a directory: killed at any moment and
                started again, it goes on where it was
  --progress    show progress also where the standard error is no terminal
  --help        show this";

const PUBLISHERS: usize = 2;
/// Publishers wait for a subscription that is behind: it misses nothing.
const LOSSLESS: Overflow = Overflow::Block { timeout: None };
/// The board has so many lines, and is drawn anew so often.
const BOARD_LINES: usize = 32;
const BOARD_PERIOD: Duration = Duration::from_millis(16);
const LATE_BY_MINUTES: i64 = 120;
/// How long handlers have at the end to handle what is queued.
const DEADLINE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args_os().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(reason) => {
            eprintln!("flights: {reason}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let outcome = match &options.data {
        Some(dir) => job::run(dir, &options.file),
        None => run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flights: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let broker = Broker::in_memory();
    let input = input::read(&broker, &options.file)
        .map_err(|error| format!("{}: {error}", options.file.display()))?;
    let mut table = Table::default();

    // A handler is called for as long as its subscription is held.
    let jfk = table.row("jfk");
    let _jfk = broker
        .subscription("flights/JFK/*/*")
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(LOSSLESS)
        .handler(move |message| lock(&jfk).got(message))?;

    let cancelled = table.row("cancelled");
    let _cancelled = broker
        .subscription("flights/**")
        .filter(r#"attributes.status = "cancelled""#)
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(LOSSLESS)
        .handler(move |message| lock(&cancelled).got(message))?;

    let tally = table.row("one-topic");
    let one_topic = broker
        .subscription(input.first_topic())
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(LOSSLESS)
        .open()?;
    let one_topic = thread::spawn(move || receive_all(one_topic, &tally));

    let tally = table.row("board");
    let board = broker
        .subscription("**")
        .capacity(BOARD_LINES)
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(Overflow::DropOldest)
        .open()?;
    let board = thread::spawn(move || show_newest(board, &tally));

    let on_time = table.row("on-time");
    let failures = Arc::clone(&on_time);
    let _on_time = broker
        .subscription("**")
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(LOSSLESS)
        .on_error(move |_| lock(&failures).failed += 1)
        .handler(move |message| {
            lock(&on_time).got(message);
            expect_on_time(message)
        })?;

    let published = publish_all(input, options.progress)?;

    let tally = table.row("late");
    let late = broker.subscription("**").start(Start::Last(100)).open()?;

    // Handlers finish what is queued; consumers that pull get it, and are then told `Closed`.
    let left = broker.close(DEADLINE);
    receive_all(late, &tally)?;
    for consumer in [one_topic, board] {
        consumer.join().map_err(|_| "a consumer panicked")??;
    }
    if left.unhandled > 0 {
        eprintln!("flights: {} messages were not handled in time", left.unhandled);
    }
    io::stdout().write_all(format!("{table}\n{published}").as_bytes())?;
    Ok(())
}

/// Receives until the broker closes, waiting for each message.
fn receive_all(mut subscription: Subscription, tally: &Tally) -> Result<(), RecvError> {
    loop {
        match subscription.recv() {
            Ok(message) => lock(tally).got(&message),
            // No queue drops what publishers wait for; the memory budget may be used up, though.
            Err(RecvError::Lagged(lost)) => lock(tally).lost(lost, "expired"),
            Err(RecvError::Closed) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Takes what is queued once in a period, as a board of departures would that is drawn anew: what
/// has not been shown by then and does not fit is of no interest any more.
fn show_newest(mut subscription: Subscription, tally: &Tally) -> Result<(), RecvError> {
    loop {
        match subscription.poll(BOARD_LINES, |message| lock(tally).got(message)) {
            Ok(_) => thread::sleep(BOARD_PERIOD),
            Err(RecvError::Lagged(lost)) => lock(tally).lost(lost, "overflow"),
            Err(RecvError::Closed) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn expect_on_time(message: &Message<'_>) -> Result<(), String> {
    let flight: Value =
        serde_json::from_slice(message.payload()).map_err(|error| error.to_string())?;
    match flight["delay"].as_i64() {
        Some(minutes) if minutes > LATE_BY_MINUTES => Err(format!("{minutes} minutes late")),
        _ => Ok(()),
    }
}

/// Publishes everything, each topic from one thread, so that its flights keep their order.
fn publish_all(input: Input, show_progress: bool) -> Result<Published, Box<dyn Error>> {
    let total = input.flights.len();
    let mut shares: [Vec<Flight>; PUBLISHERS] = Default::default();
    for flight in input.flights {
        let mut hasher = DefaultHasher::new();
        flight.topic.name().hash(&mut hasher);
        shares[hasher.finish() as usize % PUBLISHERS].push(flight);
    }
    let began = Instant::now();
    let (news, progress) = mpsc::channel();
    let publishers = shares.map(|share| {
        let news = news.clone();
        thread::spawn(move || share.chunks(256).try_for_each(|some| publish(some, &news)))
    });
    drop(news);
    let mut published = Published { bad_lines: input.bad_lines, ..Published::default() };
    let (mut done, mut shown) = (0, 0);
    for part in progress {
        published.add(&part);
        done += part.messages + part.bad_lines;
        let percent = done * 100 / total as u64;
        if show_progress && percent >= shown + 10 {
            shown = percent - percent % 10;
            eprintln!("published {shown} %");
        }
    }
    published.took = began.elapsed();
    for publisher in publishers {
        publisher.join().map_err(|_| "a publisher panicked")??;
    }
    Ok(published)
}

/// Publishes `flights` in order and tells what became of them.
fn publish(flights: &[Flight], news: &Sender<Published>) -> Result<(), PublishError> {
    let mut published = Published::default();
    for flight in flights {
        let attributes: Vec<(&str, &str)> =
            flight.attributes.iter().map(|(key, value)| (&**key, &**value)).collect();
        let key = flight.key.as_deref();
        let message = NewMessage { key, ..NewMessage::new(&flight.payload) };
        match flight.topic.publish(message.attributes(&attributes)) {
            Ok(receipt) => {
                published.messages += 1;
                published.matched += receipt.matched;
                published.dropped += receipt.dropped;
            }
            Err(PublishError::InvalidMessage(reason)) => {
                name_bad_line(flight.line, &reason);
                published.bad_lines += 1;
            }
            Err(error) => return Err(error),
        }
    }
    // Nobody listens only if the main thread has gone.
    let _ = news.send(published);
    Ok(())
}

/// What became of messages, as their publishers were told by the receipts.
#[derive(Default)]
struct Published {
    messages: u64,
    matched: u64,
    dropped: u64,
    bad_lines: u64,
    took: Duration,
}

impl Published {
    fn add(&mut self, part: &Self) {
        self.messages += part.messages;
        self.matched += part.matched;
        self.dropped += part.dropped;
        self.bad_lines += part.bad_lines;
    }
}

impl Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { messages, matched, dropped, bad_lines, took } = self;
        let seconds = took.as_secs_f64();
        let rate = *messages as f64 / seconds.max(f64::MIN_POSITIVE);
        writeln!(f, "published {messages} in {:.1} ms: {rate:.0} messages/s", seconds * 1e3)?;
        writeln!(f, "receipts: matched {matched}, dropped {dropped}")?;
        writeln!(f, "bad lines: {bad_lines}")
    }
}

struct Options {
    file: PathBuf,
    data: Option<PathBuf>,
    progress: bool,
}

impl Options {
    /// `None` if help was asked for.
    fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Option<Self>, String> {
        let mut options =
            Self { file: input::default_file(), data: None, progress: io::stderr().is_terminal() };
        while let Some(argument) = arguments.next() {
            match argument.to_str() {
                Some("--help") => return Ok(None),
                Some("--progress") => options.progress = true,
                Some("--file") => {
                    options.file = arguments.next().ok_or("--file wants a path")?.into();
                }
                Some("--data") => {
                    options.data = Some(arguments.next().ok_or("--data wants a directory")?.into());
                }
                _ => return Err(format!("unknown argument {argument:?}")),
            }
        }
        Ok(Some(options))
    }
}
