//! Runs many seeds of the crash simulation, of the log and of cursors and metadata: `crash-sim --seeds N --first-seed S`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use slipring_sim::{RunReport, run_log, run_seed};

/// A seed that takes longer hangs: it takes milliseconds, and a busy machine a thousand times that.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Default)]
struct Totals {
    next: u64,
    report: RunReport,
    twice: u64,
    failures: Vec<String>,
    running: Vec<Option<(u64, Instant)>>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, default: u64| {
        let at = args.iter().position(|arg| arg == name);
        at.and_then(|at| args.get(at + 1)).map_or(Ok(default), |value| value.parse())
    };
    let (Ok(seeds), Ok(first)) = (option("--seeds", 20_000), option("--first-seed", 0)) else {
        eprintln!("usage: crash-sim [--seeds N] [--first-seed S]");
        return ExitCode::FAILURE;
    };
    let start = Instant::now();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let totals =
        Mutex::new(Totals { next: first, running: vec![None; workers], ..Totals::default() });
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|worker| {
                let totals = &totals;
                scope.spawn(move || work(worker, totals, first + seeds))
            })
            .collect();
        // The watchdog.
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::park_timeout(Duration::from_millis(200));
            for (seed, since) in lock(&totals).running.iter().flatten() {
                if since.elapsed() > LIMIT {
                    eprintln!("seed {seed} hangs");
                    std::process::exit(1);
                }
            }
        }
    });
    let totals = lock(&totals);
    for failure in totals.failures.iter().take(5) {
        eprintln!("{failure}\n");
    }
    let RunReport { crashes, crashes_in_recovery, appended, poisoned, full, damaged } =
        totals.report;
    println!(
        "{seeds} seeds from {first} in {:.1?}: {} failed; {crashes} crashes, {crashes_in_recovery} \
         of them in recovery, {:.0} % of the seeds crash twice or more; {appended} records, \
         {poisoned} failed syncs, {full} times full, {damaged} damaged ends",
        start.elapsed(),
        totals.failures.len(),
        totals.twice as f64 * 100.0 / seeds.max(1) as f64,
    );
    if totals.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The log, then cursors and metadata.
fn run(seed: u64) -> Result<RunReport, String> {
    let mut report = run_log(seed)?;
    let others = run_seed(seed).map_err(|failure| failure.to_string())?;
    report.crashes += others.crashes as u32;
    report.crashes_in_recovery += others.crashes_in_open as u32;
    Ok(report)
}

fn lock(totals: &Mutex<Totals>) -> impl std::ops::DerefMut<Target = Totals> + use<'_> {
    totals.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn work(worker: usize, totals: &Mutex<Totals>, end: u64) {
    loop {
        let seed = {
            let mut totals = lock(totals);
            if totals.next >= end || totals.failures.len() >= 20 {
                totals.running[worker] = None;
                return;
            }
            totals.next += 1;
            let seed = totals.next - 1;
            totals.running[worker] = Some((seed, Instant::now()));
            seed
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| run(seed)));
        let mut totals = lock(totals);
        match outcome {
            Ok(Ok(report)) => {
                totals.report += report;
                totals.twice += u64::from(report.crashes >= 2);
            }
            Ok(Err(failure)) => totals.failures.push(failure),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("");
                totals.failures.push(format!("seed {seed} panics: {text}"));
            }
        }
    }
}
