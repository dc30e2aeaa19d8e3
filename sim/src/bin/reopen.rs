//! How long a store takes to open, and to give its newest record, after its process was killed:
//! `reopen [--mib N] [--dir DIR]`. Fails if that is more than a second, most of the times.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use slipring::NewMessage;
use slipring::store::{
    DiskStore, Group, MessageStore, RecordPlace, Records, StoredRecord, SyncPolicy,
};

const LIMIT: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;
/// Records of a group, and bytes of a record's payload: a group is about half a MiB.
const GROUP: u64 = 512;
const PAYLOAD: usize = 992;
const PARTITIONS: u64 = 100;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["--child", dir, mib] => child(Path::new(dir), mib),
        _ => parent(&words),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reopen: {error}");
            ExitCode::FAILURE
        }
    }
}

fn open(dir: &Path) -> Outcome<DiskStore> {
    Ok(DiskStore::builder().sync(SyncPolicy::Interval(Duration::from_millis(100))).open(dir)?)
}

/// Fills a store, or adds to a full one; says so, and waits for its end.
fn child(dir: &Path, mib: &str) -> Outcome<()> {
    let store = open(dir)?;
    let end = mib.parse::<u64>()? << 20;
    let mut next = store.bounds(0)?.end;
    let first = next;
    while next == first || next * (PAYLOAD + 32) as u64 <= end {
        let mut bytes = vec![];
        for sequence in next..next + GROUP {
            let (partition, offset) = ((sequence % PARTITIONS) as u32, sequence / PARTITIONS);
            let place = RecordPlace { partition, offset, sequence, published_us: sequence };
            StoredRecord::encode(&NewMessage::new(&[7; PAYLOAD]), place, &mut bytes)?;
        }
        store.append(0, &Group { base_sequence: next, parts: &[&bytes] })?;
        next += GROUP;
    }
    println!("{next}");
    loop {
        std::thread::park();
    }
}

fn parent(words: &[&str]) -> Outcome<()> {
    let option = |name: &str| {
        words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1)).copied()
    };
    let mib = option("--mib").unwrap_or("1024");
    let base = option("--dir").map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = base.join(format!("slipring-reopen-{}", std::process::id()));
    let outcome = measure(&dir, mib);
    std::fs::remove_dir_all(&dir)?;
    outcome
}

fn measure(dir: &Path, mib: &str) -> Outcome<()> {
    let mut times = vec![];
    for _ in 0..ROUNDS {
        let end = fill_and_kill(dir, mib)?;
        let start = Instant::now();
        let store = open(dir)?;
        let opened = start.elapsed();
        let bounds = store.bounds(0)?;
        if bounds.end != end {
            return Err(format!("{end} records were stored, {} are there", bounds.end).into());
        }
        let mut records = Records::new();
        store.read(0, end - 1..end, 1, &mut records)?;
        let read = start.elapsed();
        println!("{mib} MiB: opened in {opened:.1?}, the newest record read in {read:.1?}");
        times.push(read);
    }
    times.sort_unstable();
    let median = times[ROUNDS / 2];
    if median > LIMIT { Err(format!("{median:?} is too long").into()) } else { Ok(()) }
}

fn fill_and_kill(dir: &Path, mib: &str) -> Outcome<u64> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--child".as_ref(), dir.as_os_str()])
        .arg(mib)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut end = String::new();
    BufReader::new(child.stdout.take().ok_or("no pipe")?).read_line(&mut end)?;
    child.kill()?;
    child.wait()?;
    Ok(end.trim().parse()?)
}
