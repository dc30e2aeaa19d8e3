//! E: the durable log, beside a bare file on the same disk.

use std::path::Path;
use std::time::Duration;

use crate::disk;
use crate::harness::{Contender, Plan, Results, figure, in_turns};
use crate::peers::jetstream;
use crate::report::{self, Bars, OURS};
use crate::side::{Memory, Side, Stored, Synced};

/// Bytes of a payload.
pub(crate) const PAYLOAD: usize = 256;
/// What is read back.
const STORED: u64 = 1 << 20;
/// Records that make a GiB, with what a record has besides its payload.
const GIB: u64 = (1 << 30) / (PAYLOAD as u64 + 32);

/// Runs the section.
pub(crate) fn run(plan: &Plan, ours: Option<&dyn Side>, bars: &mut Bars) {
    println!("\n## E. Durable log, payloads of 256 bytes");
    let Some(ours) = ours else {
        let ratios = [("E1", 0.9), ("E2", 0.8), ("E3", 0.6), ("E4", 50.0), ("E5", 10.0)];
        for (id, required) in ratios.into_iter().chain([("E6", 0.6), ("E7", 0.5)]) {
            bars.at_least(id, None, required, "x");
        }
        bars.at_least("E8", None, 5.0, "M/s");
        bars.at_least("E9", None, 0.8, "x");
        bars.at_most("E10", None, 1.0, "s");
        bars.at_most("E11", None, 10.0, "%");
        return;
    };
    let dir = &*plan.dir.join("slipring-durable");
    disk::empty(dir);
    let file_system = disk::file_system(dir);
    println!("\nOn {file_system}.");
    if file_system == "tmpfs" {
        println!("**That is memory: what is synced costs nothing here, and says nothing.**");
    }
    for (id, batch, writes, bar) in
        [("E1", 1, 1000, 0.9), ("E2", 64, 1000, 0.8), ("E3", 1024, 200, 0.6)]
    {
        synced(plan, dir, ours, batch, writes).inspect(|ratio| {
            bars.at_least(id, Some(*ratio), bar, "x");
        });
    }
    beside_server(plan, dir, ours, ("E4", 50.0), Synced::Each, (51_200, 2000), bars);
    beside_server(plan, dir, ours, ("E5", 10.0), Synced::Never, (1_024_000, 50_000), bars);
    for (id, batch, writes, bar) in [("E6", 1, 500_000, 0.6), ("E7", 64, 20_000, 0.5)] {
        written(plan, dir, ours, batch, writes).inspect(|ratio| {
            bars.at_least(id, Some(*ratio), bar, "x");
        });
    }
    replay(plan, dir, ours, bars);
    beside_laggard(plan, dir, ours, bars);
    recovery(plan, dir, ours, bars);
    let _ = std::fs::remove_dir_all(dir);
}

/// A contender that stores or reads `records` a run; its figure is thousands a second.
fn thousands<'a>(
    name: &str,
    records: u64,
    mut run: impl FnMut() -> Duration + 'a,
) -> Contender<'a> {
    figure(name, move || records as f64 / 1e3 / run().as_secs_f64())
}

fn title(batch: usize, how: &str) -> String {
    if batch == 1 { format!("{how}, one at a time") } else { format!("{how}, batches of {batch}") }
}

/// Against appending and syncing as many bytes, in a file whose blocks are there.
fn synced(plan: &Plan, dir: &Path, ours: &dyn Side, batch: usize, writes: u64) -> Option<f64> {
    let (records, bytes) = (writes * batch as u64, batch * PAYLOAD);
    let stored = Stored { dir, batch, sync: Synced::Each, memory: Memory::Small };
    let names = ["bare file, preallocated", "bare file that grows"];
    let results = in_turns(
        plan,
        vec![
            thousands(OURS, records, || ours.store(&stored, records)),
            thousands(names[0], records, || disk::append_and_sync(dir, writes, bytes, true)),
            thousands(names[1], records, || disk::append_and_sync(dir, writes, bytes, false)),
        ],
    );
    report::table(&title(batch, "Synced"), "k records/s", OURS, &results);
    results.ratio(OURS, names[0])
}

/// Messages that wait for their acknowledgement at JetStream, and in a batch of ours.
const IN_FLIGHT: usize = 256;
/// As many as its throughput needs that has a socket between.
const MANY_IN_FLIGHT: usize = 4000;

/// Against a log on a server of its own, as quick as it is with either window. Of ours and of its
/// messages go so many into a run.
fn beside_server(
    plan: &Plan,
    dir: &Path,
    ours: &dyn Side,
    (id, bar): (&str, f64),
    sync: Synced,
    (records, messages): (u64, u64),
    bars: &mut Bars,
) {
    let versions = match jetstream::found(dir, sync) {
        Ok(versions) => versions,
        Err(missing) => return bars.skip(id, &missing),
    };
    let (how, set) = match sync {
        Synced::Each => ("Synced", "sync_interval: always"),
        Synced::Never => ("Not synced", "as it is by default"),
    };
    let stored = Stored { dir, batch: IN_FLIGHT, sync, memory: Memory::Small };
    let names = [IN_FLIGHT, MANY_IN_FLIGHT].map(|window| format!("JetStream, {window} in flight"));
    let beside = |window| move || jetstream::publish(dir, sync, window, messages);
    let results = in_turns(
        plan,
        vec![
            thousands(OURS, records, || ours.store(&stored, records)),
            thousands(&names[0], messages, beside(IN_FLIGHT)),
            thousands(&names[1], messages, beside(MANY_IN_FLIGHT)),
        ],
    );
    report::table(&title(IN_FLIGHT, how), "k records/s", OURS, &results);
    println!("\n{versions}; {set}.");
    let ratios = names.iter().filter_map(|name| results.ratio(OURS, name));
    bars.at_least(id, ratios.reduce(f64::min), bar, "x");
}

/// Against a write for each payload, or for each 16 KiB of them.
fn written(plan: &Plan, dir: &Path, ours: &dyn Side, batch: usize, writes: u64) -> Option<f64> {
    let (records, bytes) = (writes * batch as u64, batch * PAYLOAD);
    let stored = |memory| Stored { dir, batch, sync: Synced::Never, memory };
    let (small, large) = (stored(Memory::Small), stored(Memory::Default));
    let floor = "bare file";
    let results = in_turns(
        plan,
        vec![
            thousands(OURS, records, || ours.store(&small, records)),
            thousands("slipring, 64 MiB of memory", records, || ours.store(&large, records)),
            thousands(floor, records, || disk::append(dir, writes, bytes)),
        ],
    );
    report::table(&title(batch, "Not synced"), "k records/s", OURS, &results);
    results.ratio(OURS, floor)
}

/// Reading all there is, from the page cache and from the disk.
fn replay(plan: &Plan, dir: &Path, ours: &dyn Side, bars: &mut Bars) {
    ours.fill(dir, STORED);
    let names = ["from the page cache", "from the disk", "bare reads from the disk"];
    let segments = disk::segments(dir);
    let results = in_turns(
        plan,
        vec![
            thousands(names[0], STORED, || ours.replay(dir, STORED, &|| ())),
            thousands(names[1], STORED, || ours.replay(dir, STORED, &|| disk::forget(&segments))),
            thousands(names[2], STORED, || {
                disk::forget(&segments);
                disk::read(&segments)
            }),
        ],
    );
    report::table("Replay of 1M records", "k records/s", "", &results);
    bars.at_least("E8", results.median(names[0]).map(|thousands| thousands / 1e3), 5.0, "M/s");
    bars.at_least("E9", results.ratio(names[1], names[2]), 0.8, "x");
}

/// What a subscription that reads what is long gone from memory costs who publishes.
fn beside_laggard(plan: &Plan, dir: &Path, ours: &dyn Side, bars: &mut Bars) {
    const PUBLISHES: u64 = 200_000;
    let names = ["beside a subscription that keeps up", "beside one that reads from the disk"];
    let beside = |lags| move || ours.publish_beside_reader(dir, PUBLISHES, lags);
    let results = in_turns(
        plan,
        vec![
            thousands(names[0], PUBLISHES, beside(false)),
            thousands(names[1], PUBLISHES, beside(true)),
        ],
    );
    report::table("Not synced, one at a time, while somebody reads", "k records/s", "", &results);
    let cost = |results: &Results| Some(100.0 - 100.0 * results.ratio(names[1], names[0])?);
    bars.at_most("E11", cost(&results), 10.0, "%");
}

/// Opening what a process has left that ended without a close.
fn recovery(plan: &Plan, dir: &Path, ours: &dyn Side, bars: &mut Bars) {
    ours.fill(dir, GIB);
    // The first one finds it closed, and leaves it as the others want it. That turn does not count.
    let entrants = vec![figure(OURS, || ours.reopen_elsewhere(dir).as_secs_f64())];
    let results = in_turns(plan, entrants);
    report::table("Opening 1 GiB after a process ended without a close", "s", OURS, &results);
    bars.at_most("E10", results.median(OURS), 1.0, "s");
}
