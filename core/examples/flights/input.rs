//! The input: lines of JSON, and which of them cannot be used.
//!
//! Each line is an object with a `topic`, a `payload` of any kind and, where wanted, a `key` and
//! `attributes` of text.

use serde_json::Value;
use slipring::{Broker, Topic};
use std::error::Error;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

const DATA: &str = "examples/data/flights-2013-01.ndjson";

/// What is to be published, in the order of the input.
pub(crate) struct Input {
    pub(crate) flights: Vec<Flight>,
    pub(crate) bad_lines: u64,
}

/// A line of the input, ready to be published.
pub(crate) struct Flight {
    pub(crate) line: usize,
    pub(crate) topic: Topic,
    pub(crate) key: Option<String>,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) payload: Vec<u8>,
}

impl Input {
    /// The topic of the first flight, or one that has none where the input is empty.
    pub(crate) fn first_topic(&self) -> &str {
        self.flights.first().map_or("flights/JFK/LAX/UA", |flight| flight.topic.name())
    }
}

/// Where the data is: next to the crate, or where the example is run.
pub(crate) fn default_file() -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(DATA);
    if file.exists() { file } else { DATA.into() }
}

/// Reads all flights of `file`, or of the standard input if that is `-`. Creates their topics.
pub(crate) fn read(broker: &Broker, file: &Path) -> io::Result<Input> {
    if file == Path::new("-") {
        return read_flights(broker, io::stdin().lock());
    }
    read_flights(broker, BufReader::new(File::open(file)?))
}

/// A line that cannot be used is named, and left out.
fn read_flights(broker: &Broker, input: impl BufRead) -> io::Result<Input> {
    let (mut flights, mut bad_lines) = (Vec::new(), 0);
    for (line, text) in (1..).zip(input.split(b'\n')) {
        let text = text?;
        if text.trim_ascii().is_empty() {
            continue;
        }
        match read_flight(broker, line, &text) {
            Ok(flight) => flights.push(flight),
            Err(reason) => {
                name_bad_line(line, &reason);
                bad_lines += 1;
            }
        }
    }
    Ok(Input { flights, bad_lines })
}

fn read_flight(broker: &Broker, line: usize, text: &[u8]) -> Result<Flight, Box<dyn Error>> {
    let json: Value = serde_json::from_slice(text)
        // The parser has seen one line; which it was in the file, the caller knows.
        .map_err(|error| error.to_string().replace(" at line 1 column ", " at column "))?;
    let topic = json["topic"].as_str().ok_or("\"topic\" is not text")?;
    let key = match &json["key"] {
        Value::Null => None,
        key => Some(key.as_str().ok_or("\"key\" is not text")?.to_owned()),
    };
    let attributes = match &json["attributes"] {
        Value::Null => Vec::new(),
        attributes => attributes
            .as_object()
            .ok_or("\"attributes\" is not an object")?
            .iter()
            .map(|(key, value)| match value.as_str() {
                Some(value) => Ok((key.clone(), value.to_owned())),
                None => Err(format!("attribute {key:?} is not text")),
            })
            .collect::<Result<_, _>>()?,
    };
    let payload = json.get("payload").ok_or("no \"payload\"")?.to_string().into_bytes();
    // Last, because this creates the topic.
    let topic = broker.topic(topic)?;
    Ok(Flight { line, topic, key, attributes, payload })
}

/// Tells which line is not published, and why not.
pub(crate) fn name_bad_line(line: usize, reason: &dyn Display) {
    eprintln!("flights: line {line}: {reason}");
}
