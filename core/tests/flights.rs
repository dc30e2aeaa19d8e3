//! The examples do what they say: their programs are run, and what they print is compared with a
//! plain scan of their input that has nothing of the library's code.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

use slipring::{Broker, Start};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/data/flights-2013-01.ndjson");

/// No example runs for that long, also on a busy machine and under a sanitizer.
const WATCHDOG: Duration = Duration::from_secs(300);

/// Goal: every count of the table is what a look at the lines says.
/// Method: look at the text of the lines, without a JSON parser.
#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn table_agrees_with_a_plain_scan_of_the_file() {
    let text = std::fs::read_to_string(DATA).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let topic_of = |line: &str| line.split('"').nth(3).unwrap().to_owned();
    let delay_of = |line: &str| -> Option<i64> {
        line.split("\"delay\":").nth(1)?.split(',').next()?.parse().ok()
    };
    let count =
        |wanted: &dyn Fn(&str) -> bool| lines.iter().filter(|line| wanted(line)).count() as u64;
    let total = count(&|_| true);
    let jfk = count(&|line| topic_of(line).starts_with("flights/JFK/"));
    let cancelled = count(&|line| line.contains("\"status\":\"cancelled\""));
    let first_topic = topic_of(lines[0]);
    let of_first_topic = count(&|line| topic_of(line) == first_topic);
    let very_late = count(&|line| delay_of(line).is_some_and(|minutes| minutes > 120));
    assert!(total == 27_004 && jfk > 0 && cancelled > 0 && very_late > 0, "the scan sees nothing");

    let run = run("flights", &[], "");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.stderr, "", "progress is shown only on a terminal");
    let table = run.table();
    assert_eq!(table["jfk"], Row::all_delivered(jfk));
    assert_eq!(table["cancelled"], Row::all_delivered(cancelled));
    assert_eq!(table["one-topic"], Row::all_delivered(of_first_topic));
    assert_eq!(table["on-time"], Row { failed: very_late, ..Row::all_delivered(total) });
    assert_eq!(table["late"], Row::all_delivered(100));
    let board = &table["board"];
    assert_eq!((board.matched, board.failed), (total, 0));
    assert_eq!(board.delivered + board.dropped, total);
    assert!(board.delivered > 0 && board.dropped > 0, "{board:?}");

    // The publishers' receipts, and what the subscriptions were told, agree to the message.
    let matched: u64 = table.values().map(|row| row.matched).sum::<u64>() - table["late"].matched;
    let receipts = format!("receipts: matched {matched}, dropped {}\n", board.dropped);
    assert!(run.stdout.contains(&receipts), "no {receipts:?} in\n{}", run.stdout);
    assert!(run.stdout.contains(&format!("published {total} in ")), "{}", run.stdout);
    assert!(run.stdout.ends_with("bad lines: 0\n"), "{}", run.stdout);
}

/// Goal: each kind of bad line is named with its number and its reason, and the others count.
#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn bad_lines_are_named_and_the_run_goes_on() {
    let long_key = format!(r#"{{"topic":"a","payload":1,"key":"{}"}}"#, "k".repeat(1025));
    let input = [
        (r#"{"topic":"flights/JFK/LAX/UA","payload":{"delay":121}}"#, None),
        (r#"{"topic":"flights/JFK/LAX/UA","payload":"#, Some("EOF while parsing a value")),
        ("", None),
        (r#"{"payload":1}"#, Some("\"topic\" is not text")),
        (r#"{"topic":"a//b","payload":1}"#, Some("invalid name at byte 2: empty segment")),
        (r#"{"topic":"a/*","payload":1}"#, Some("'*' is not allowed in a topic name")),
        (r#"{"topic":"$sys/a","payload":1}"#, Some("belong to the system")),
        (r#"{"topic":"a"}"#, Some("no \"payload\"")),
        (r#"{"topic":"a","payload":1,"key":7}"#, Some("\"key\" is not text")),
        (r#"{"topic":"a","payload":1,"attributes":{"n":7}}"#, Some("attribute \"n\" is not text")),
        (r#"{"topic":"a","payload":1,"attributes":[]}"#, Some("\"attributes\" is not an object")),
        (&long_key, Some("ordering key of 1025 bytes is over the limit")),
        (r#"[1]"#, Some("\"topic\" is not text")),
        ("{\"topic\":\"flights/JFK/LAX/UA\",\"payload\":{\"delay\":120}}\r", None),
        (r#"{"topic":"other","payload":null,"attributes":{"status":"cancelled"}}"#, None),
        (r#"{"topic":"flights/b","payload":"","attributes":{"status":"cancelled"}}"#, None),
    ];
    let text = input.map(|(line, _)| line).join("\n");
    let run = run("flights", &["--file", "-"], &text);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let mut bad = 0;
    for (number, (line, reason)) in (1..).zip(input) {
        let named = run.stderr.lines().find(|told| told.contains(&format!(": line {number}: ")));
        assert_eq!(named.is_some(), reason.is_some(), "line {number} {line}: {named:?}");
        if let (Some(named), Some(reason)) = (named, reason) {
            assert!(named.contains(reason), "line {number}: {named:?} has no {reason:?}");
            bad += 1;
        }
    }
    assert_eq!(run.stderr.lines().count(), bad, "{}", run.stderr);
    assert!(run.stdout.ends_with(&format!("bad lines: {bad}\n")), "{}", run.stdout);
    let table = run.table();
    assert_eq!(table["jfk"], Row::all_delivered(2));
    assert_eq!(table["cancelled"], Row::all_delivered(1));
    assert_eq!(table["one-topic"], Row::all_delivered(2));
    assert_eq!(table["board"], Row::all_delivered(4));
    assert_eq!(table["on-time"], Row { failed: 1, ..Row::all_delivered(4) });
    assert_eq!(table["late"], Row::all_delivered(4));
}

/// Goal: an input without a line gives a table of zeroes, and bytes that are no text are one bad
/// line like others.
#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn input_may_be_empty_or_no_text() {
    for (input, bad_lines) in [(&b""[..], 0), (b"\n\n", 0), (b"\xff\xfe\0{\n\xc3", 2)] {
        let run = run("flights", &["--file", "-"], input);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert_eq!(run.table().len(), 6);
        assert!(run.table().values().all(|row| *row == Row::all_delivered(0)), "{}", run.stdout);
        assert!(run.stdout.ends_with(&format!("bad lines: {bad_lines}\n")), "{}", run.stdout);
    }
}

/// Goal: killed again and again, the job stores and handles every line once.
/// Method: let each run get a little further, kill it there, and look at what the last one left.
#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn the_job_over_a_directory_survives_twenty_kills() {
    const KILLS: usize = 20;
    let text = std::fs::read_to_string(DATA).unwrap();
    let total = text.lines().count();
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = Command::new(examples().join("flights"));
        command.arg("--data").arg(dir.path()).stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut killed = 0;
    while killed < KILLS {
        let mut child = start();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The first lines come soon, and from both threads: a different few of them each time.
        let waited = lines.by_ref().take(1 + killed % 3).count();
        assert_eq!(waited, 1 + killed % 3, "it has ended: {:?}", child.wait());
        for _ in 0..killed * 5_000 {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        killed += 1;
    }
    let last = run("flights", &["--data", dir.path().to_str().unwrap()], "");
    assert_eq!((last.code, &*last.stderr), (Some(0), ""));
    assert!(last.stdout.contains(&format!("stored {total}: ")), "{}", last.stdout);
    let handled = std::fs::read_to_string(dir.path().join("handled")).unwrap();
    let mut lines: Vec<usize> = handled.lines().map(|line| line.parse().unwrap()).collect();
    lines.sort_unstable();
    assert!(lines.iter().copied().eq(1..=total), "each line once");

    let broker = Broker::open(dir.path()).unwrap();
    let mut all = broker.subscription("**").start(Start::Earliest).open().unwrap();
    let mut stored = Vec::new();
    while all
        .poll(64, |message| stored.push((message.id().to_string(), message.payload().to_vec())))
        .unwrap()
        > 0
    {}
    assert_eq!(stored.len(), total, "none lost, none invented");
    stored.sort_unstable_by_key(|(id, _)| id.parse::<usize>().unwrap());
    for ((number, line), (id, payload)) in (1..).zip(text.lines()).zip(&stored) {
        assert_eq!(*id, number.to_string());
        let payload = std::str::from_utf8(payload).unwrap();
        let flight = payload.split(['{', ',', '}']).find(|part| part.starts_with("\"flight\":"));
        assert!(line.contains(&format!("{},", flight.unwrap())), "{number}: {payload}");
    }
}

/// Goal: progress is shown where it is asked for, in steps.
#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn progress_is_shown_when_asked_for() {
    let run = run("flights", &["--progress", "--file", DATA], "");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let shown: Vec<&str> = run.stderr.lines().collect();
    assert!(shown.len() <= 10, "{shown:?}");
    assert_eq!(shown.last(), Some(&"published 100 %"));
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn bad_arguments_show_the_usage_and_exit_with_2() {
    let cases = [
        (&["--fiel", "x"][..], "unknown argument \"--fiel\""),
        (&["flights.ndjson"], "unknown argument \"flights.ndjson\""),
        (&["--file"], "--file wants a path"),
    ];
    for (arguments, reason) in cases {
        let run = run("flights", arguments, "");
        assert_eq!((run.code, &*run.stdout), (Some(2), ""), "{arguments:?}");
        assert!(run.stderr.contains(reason) && run.stderr.contains("usage:"), "{}", run.stderr);
    }
    let help = run("flights", &["--help"], "");
    assert_eq!((help.code, &*help.stderr), (Some(0), ""));
    assert!(help.stdout.contains("--file PATH"), "{}", help.stdout);
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn unreadable_file_is_named_and_exits_with_1() {
    let directory = env!("CARGO_MANIFEST_DIR");
    for (file, reason) in [("no/such/file", "No such file"), (directory, "Is a directory")] {
        let run = run("flights", &["--file", file], "");
        assert_eq!((run.code, &*run.stdout), (Some(1), ""));
        assert!(run.stderr.contains(file) && run.stderr.contains(reason), "{}", run.stderr);
    }
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn hello_receives_what_it_publishes() {
    let run = run("hello", &[], "");
    let expected = (Some(0), "sports/cricket/live: four!\n", "");
    assert_eq!((run.code, &*run.stdout, &*run.stderr), expected);
}

/// What a program did.
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// The counts of a row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    matched: u64,
    delivered: u64,
    dropped: u64,
    failed: u64,
}

impl Row {
    fn all_delivered(count: u64) -> Self {
        Self { matched: count, delivered: count, dropped: 0, failed: 0 }
    }
}

impl Run {
    /// The rows by their names. Checks the columns that are not counts.
    fn table(&self) -> BTreeMap<&str, Row> {
        let mut lines = self.stdout.lines();
        let head = lines.next().unwrap();
        assert!(head.starts_with("subscription") && head.ends_with("messages/s"), "{head}");
        lines.take_while(|line| !line.is_empty()).map(row).collect()
    }
}

fn row(line: &str) -> (&str, Row) {
    let cells: Vec<&str> = line.split_whitespace().collect();
    let [name, matched, delivered, dropped, because, failed, p50, p99, rate] = cells[..] else {
        panic!("not nine cells: {line}");
    };
    let count = |cell: &str| cell.parse::<u64>().unwrap();
    let row = Row {
        matched: count(matched),
        delivered: count(delivered),
        dropped: count(dropped),
        failed: count(failed),
    };
    assert_eq!(because, if row.dropped > 0 { "overflow" } else { "-" }, "{line}");
    if name == "late" || row.delivered == 0 {
        assert_eq!((p50, p99), ("-", "-"), "{line}");
    } else {
        assert!(count(p50) <= count(p99), "{line}");
    }
    assert!(count(rate) == 0 || row.delivered > 0, "{line}");
    (name, row)
}

/// Runs an example with `input` on its standard input.
fn run(name: &str, arguments: &[&str], input: impl AsRef<[u8]>) -> Run {
    let mut child = Command::new(examples().join(name))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (done, wait_done) = mpsc::channel();
    let read = |mut pipe: Box<dyn Read + Send>| {
        let done = done.clone();
        thread::spawn(move || {
            let mut text = String::new();
            pipe.read_to_string(&mut text).unwrap();
            done.send(()).unwrap();
            text
        })
    };
    let stdout = read(Box::new(child.stdout.take().unwrap()));
    let stderr = read(Box::new(child.stderr.take().unwrap()));
    // The inputs of these tests fit into a pipe. An example that does not read it may be gone.
    let _ = child.stdin.take().unwrap().write_all(input.as_ref());
    for _ in 0..2 {
        if wait_done.recv_timeout(WATCHDOG).is_err() {
            child.kill().unwrap();
            panic!("{name} {arguments:?} does not end");
        }
    }
    let code = child.wait().unwrap().code();
    Run { code, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

/// Where the examples are, once they are built: Cargo builds them for `cargo test`, but not for
/// `cargo test --test flights`.
fn examples() -> &'static Path {
    static EXAMPLES: OnceLock<PathBuf> = OnceLock::new();
    EXAMPLES.get_or_init(|| {
        // This is <target>/<profile>/deps/flights-<hash>.
        let program = std::env::current_exe().unwrap();
        let output = program.parent().and_then(Path::parent).unwrap();
        let profile = match output.file_name().and_then(OsStr::to_str).unwrap() {
            "debug" => "dev",
            profile => profile,
        };
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--example", "flights", "--example", "hello"])
            .args(["--profile", profile, "--target-dir"])
            .arg(output.parent().unwrap())
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .status()
            .unwrap();
        assert!(built.success(), "the examples cannot be built");
        output.join("examples")
    })
}
