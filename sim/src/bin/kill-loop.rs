//! Kills a real process that appends to a real store, again and again, at random moments; the next
//! one verifies all that was acknowledged: `kill-loop [--cycles N] [--dir DIR]`, for each policy.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use slipring::NewMessage;
use slipring::store::{
    DiskStore, Group, MessageStore, RecordPlace, Records, Retention, StoredRecord, SyncPolicy,
};

const POLICIES: [(&str, SyncPolicy); 3] = [
    ("always", SyncPolicy::Always),
    ("interval", SyncPolicy::Interval(Duration::from_millis(5))),
    ("os", SyncPolicy::Os),
];
const PARTITIONS: u64 = 4;
/// A child that takes longer to open and verify hangs.
const LIMIT: Duration = Duration::from_secs(120);

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["--child", dir, policy, acknowledged] => child(Path::new(dir), policy, acknowledged),
        _ => parent(&words),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kill-loop: {error}");
            ExitCode::FAILURE
        }
    }
}

fn open(dir: &Path, policy: &str) -> Outcome<DiskStore> {
    let policy = POLICIES.iter().find(|(name, _)| *name == policy).ok_or("no such policy")?.1;
    let builder = DiskStore::builder().sync(policy).segment_bytes(1 << 20);
    Ok(builder.preallocate_bytes(256 << 10).reserve_bytes(1 << 20).open(dir)?)
}

/// What the record of a sequence must hold: nobody else could have written it.
fn payload(sequence: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(sequence);
    let mut payload = vec![0; rng.usize(0..1500)];
    rng.fill(&mut payload);
    payload
}

/// Verifies what is there, then appends until it is killed.
fn child(dir: &Path, policy: &str, acknowledged: &str) -> Outcome<()> {
    let acknowledged: u64 = acknowledged.parse()?;
    let start = Instant::now();
    let store = open(dir, policy)?;
    let opened = start.elapsed();
    let end = verify(&store, acknowledged)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "verified {end} {}", opened.as_micros())?;
    let mut rng = Rng::new();
    let mut next = end;
    loop {
        let count = rng.u64(1..20);
        let records: Vec<Vec<u8>> = (next..next + count).map(record).collect::<Outcome<_>>()?;
        let parts: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        store.append(0, &Group { base_sequence: next, parts: &parts })?;
        next += count;
        store.commit(0, next)?;
        // One write call: whole in the pipe or not at all.
        out.write_all(format!("stored {next}\n").as_bytes())?;
        out.flush()?;
        if rng.u8(0..50) == 0 {
            let keep = Retention { max_age_us: None, max_bytes: Some(4 << 20) };
            store.retain(0, 0, &|_| keep)?;
        }
    }
}

fn record(sequence: u64) -> Outcome<Vec<u8>> {
    let place = RecordPlace {
        partition: (sequence % PARTITIONS) as u32,
        offset: sequence / PARTITIONS,
        sequence,
        published_us: sequence,
    };
    let mut bytes = vec![];
    StoredRecord::encode(&NewMessage::new(&payload(sequence)), place, &mut bytes)?;
    Ok(bytes)
}

/// Reads all there is: dense, as it was written, and with everything that was acknowledged.
fn verify(store: &DiskStore, acknowledged: u64) -> Outcome<u64> {
    let bounds = store.bounds(0)?;
    if bounds.end < acknowledged {
        return Err(format!("{acknowledged} acknowledged, {} there", bounds.end).into());
    }
    if let Some(damage) = &store.recovery()[0].damage {
        return Err(format!("taken for damage: {damage}").into());
    }
    let mut records = Records::new();
    let mut at = bounds.low;
    let mut expected = None;
    while at < bounds.end {
        store.read(0, at..bounds.end, 1 << 20, &mut records)?;
        for (sequence, found) in records.iter() {
            if *expected.get_or_insert(sequence) != sequence {
                return Err(format!("sequence {sequence} follows another than its own").into());
            }
            if found.bytes() != record(sequence)? {
                return Err(format!("sequence {sequence} has another record").into());
            }
            expected = Some(sequence + 1);
        }
        at = records.next();
    }
    for partition in store.partitions(0)? {
        let below = bounds.end + PARTITIONS - 1 - u64::from(partition.partition);
        if partition.next != below / PARTITIONS {
            return Err(format!("{partition:?} where the end is {}", bounds.end).into());
        }
    }
    Ok(bounds.end)
}

fn parent(words: &[&str]) -> Outcome<()> {
    let option = |name: &str| {
        words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1)).copied()
    };
    let cycles: u32 = option("--cycles").unwrap_or("200").parse()?;
    let base = option("--dir").map_or_else(std::env::temp_dir, PathBuf::from);
    // At once: each of them mostly waits, for the disk or for the moment to kill.
    let outcomes = std::thread::scope(|scope| {
        let policies = POLICIES.map(|(policy, _)| {
            let dir = base.join(format!("slipring-kill-{policy}-{}", std::process::id()));
            scope.spawn(move || {
                let outcome = cycle(&dir, policy, cycles);
                let outcome = outcome.and_then(|()| Ok(std::fs::remove_dir_all(&dir)?));
                outcome.map_err(|error| format!("{policy}: {error}; see {}", dir.display()))
            })
        });
        policies.map(|policy| policy.join().unwrap_or_else(|_| Err("it panicked".to_owned())))
    });
    outcomes.into_iter().try_for_each(|outcome| Ok(outcome?))
}

fn cycle(dir: &Path, policy: &str, cycles: u32) -> Outcome<()> {
    let mut rng = Rng::new();
    let mut acknowledged = 0;
    let (mut in_recovery, mut slowest) = (0, 0);
    for _ in 0..cycles {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--child".as_ref(), dir.as_os_str()])
            .args([policy, &acknowledged.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        // One in four may die while it opens the store; the others, while they append.
        let moment = if rng.u8(0..4) == 0 { Moment::Started } else { Moment::Verified };
        let after = Duration::from_millis(rng.u64(0..200));
        let (verified, opened_us) = watch(&mut child, moment, after, &mut acknowledged)?;
        in_recovery += u32::from(!verified);
        slowest = slowest.max(opened_us);
    }
    // Once more, until it has verified.
    let store = open(dir, policy)?;
    let end = verify(&store, acknowledged)?;
    println!(
        "{policy}: {cycles} kills, {in_recovery} of them before the log was verified; \
         {acknowledged} acknowledged, {end} there, none lost; slowest to open: {} ms",
        slowest / 1000
    );
    Ok(())
}

/// What the time until a kill counts from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    Started,
    Verified,
}

/// Kills the child `after` the moment, and takes in what it said. Says whether it had verified the
/// log, and how long it took to open it.
fn watch(
    child: &mut Child,
    moment: Moment,
    after: Duration,
    acknowledged: &mut u64,
) -> Outcome<(bool, u64)> {
    let out = BufReader::new(child.stdout.take().ok_or("no pipe")?);
    let (send, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        out.lines().map_while(Result::ok).try_for_each(|line| send.send(line))
    });
    let start = Instant::now();
    let mut kill_at = (moment == Moment::Started).then(|| start + after);
    let mut said = vec![];
    // Also while it says more and more.
    while kill_at.is_none_or(|at| Instant::now() < at) {
        let until = kill_at.unwrap_or(start + LIMIT);
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                kill_at.get_or_insert_with(|| Instant::now() + after);
                said.push(line);
            }
            Err(RecvTimeoutError::Timeout) if kill_at.is_none() => {
                child.kill()?;
                return Err("it hangs".into());
            }
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait()?;
                return Err(format!("it ended by itself: {status}").into());
            }
        }
    }
    child.kill()?;
    child.wait()?;
    said.extend(lines.iter());
    drop(reader.join());
    let mut verified = (false, 0);
    for line in &said {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["verified", _, micros] => verified = (true, micros.parse()?),
            ["stored", end] => *acknowledged = end.parse()?,
            _ => return Err(format!("it says {line:?}").into()),
        }
    }
    Ok(verified)
}
