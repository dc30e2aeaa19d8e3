//! The contract of a subscription over the end of its process and the next beginning: what it has
//! acknowledged, what killed it, and what has expired.
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

mod killed;
mod watchdog;

use killed::what_a_kill_leaves;
use slipring::internals::{Fs, FsEntry, FsFile, FsLock, OpenHow, RealFs};
use slipring::store::{DiskStore, SyncPolicy};
use slipring::{
    AckError, Backoff, Broker, BrokerBuilder, CircuitBreaker, DEAD_LETTER_ATTEMPTS, Handled,
    NewMessage, PublishError, RecvError, SeekError, Start, SubscribeError, Subscription,
    SubscriptionBuilder, TestClock, TopicConfig, TryRecvError, WaitStrategy,
};
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use tempfile::tempdir;

const HOUR: Duration = Duration::from_secs(3600);
const LONG: Duration = Duration::from_secs(100);

/// Quick, and as safe when a process is killed: only a power cut takes more.
fn quick() -> BrokerBuilder {
    let disk = DiskStore::builder().sync(SyncPolicy::Os).preallocate_bytes(0).reserve_bytes(0);
    Broker::builder().disk(disk)
}

fn named<'a>(broker: &Broker, name: &'a str) -> SubscriptionBuilder<'a> {
    broker.subscription("a/**").name(name)
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload.try_into().expect("8 bytes"))
}

fn publish(broker: &Broker, topic: &str, numbers: std::ops::Range<u64>) {
    for number in numbers {
        broker.publish(topic, &number.to_le_bytes()).expect("publishes");
    }
}

/// What a consumer is told, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Message(u64, u32),
    Lost(u64),
}

/// All that is there, acknowledged.
fn drain(subscription: &mut Subscription) -> Vec<Told> {
    let mut told = Vec::new();
    loop {
        match subscription.try_recv() {
            Ok(message) => {
                told.push(Told::Message(number(message.payload()), message.attempt()));
                assert_eq!(message.ack(), Ok(true));
            }
            Err(TryRecvError::Recv(RecvError::Lagged(count))) => told.push(Told::Lost(count)),
            Err(TryRecvError::Empty) => return told,
            Err(error) => panic!("{error}"),
        }
    }
}

fn first_attempts(numbers: std::ops::Range<u64>) -> Vec<Told> {
    numbers.map(|number| Told::Message(number, 1)).collect()
}

#[test]
fn what_can_no_longer_be_noted_is_not_acknowledged() {
    let dir = tempdir().unwrap();
    let broker = quick().open(dir.path()).unwrap();
    let mut all = named(&broker, "s").open().unwrap();
    publish(&broker, "a/b", 0..5);
    let acker = all.acker().unwrap();
    let ids: Vec<_> = (0..3).map(|_| all.recv().unwrap().ack_id().unwrap()).collect();
    assert_eq!(acker.ack(&ids[0]), Ok(true));
    let report = broker.close(LONG);
    assert_eq!((report.unsettled, report.store), (2, None));
    assert_eq!(acker.ack(&ids[1]), Err(AckError::Closed));
    assert_eq!(acker.ack_all(&ids[1..2]), [Err(AckError::Closed)]);
    assert_eq!(acker.nack(&ids[1], None), Err(AckError::Closed));
    assert_eq!(acker.modify_ack_deadline(&ids[1], LONG), Err(AckError::Closed));
    assert_eq!(acker.dead_letter(&ids[1], "no"), Err(AckError::Closed));
    assert_eq!(acker.settle(&ids[1], &Handled::Success), Err(AckError::Closed));
    // Nor is anything handed over that could not be acknowledged.
    assert_eq!(all.recv().unwrap_err(), RecvError::Closed);
    assert!((&mut all).into_iter().next().is_none());
    drop(broker);
    assert_eq!(acker.ack(&ids[1]), Err(AckError::Closed));
    drop(all);

    let broker = quick().open(dir.path()).unwrap();
    let mut all = named(&broker, "s").open().unwrap();
    let mut expected = vec![Told::Message(1, 2), Told::Message(2, 2)];
    expected.extend(first_attempts(3..5));
    assert_eq!(drain(&mut all), expected);
}

#[test]
fn in_memory_what_was_received_can_be_acknowledged_after_the_end() {
    let broker = Broker::in_memory();
    let mut all = named(&broker, "s").open().unwrap();
    publish(&broker, "a/b", 0..2);
    let (acker, id) = (all.acker().unwrap(), all.recv().unwrap().ack_id().unwrap());
    broker.close(LONG);
    assert_eq!(acker.ack(&id), Ok(true));
    assert_eq!(number(all.recv().unwrap().payload()), 1);
}

#[test]
fn what_is_acknowledged_while_the_broker_closes_stays_so_though_its_consumer_leaves() {
    let watchdog = watchdog::watch(120);
    let dir = tempdir().unwrap();
    let broker = quick().open(dir.path()).unwrap();
    let mut all = named(&broker, "s").open().unwrap();
    let (entered, entry) = channel();
    let (release, released) = channel::<()>();
    // Closing waits for it.
    let handler = broker.subscription("a/b").name("slow").handler(move |_| {
        entered.send(()).unwrap();
        released.recv().unwrap();
    });
    let handler = handler.unwrap();
    publish(&broker, "a/b", 0..3);
    entry.recv().unwrap();
    let mut left = None;
    thread::scope(|scope| {
        let closing = scope.spawn(|| broker.close(LONG));
        watchdog.until("it closes", || broker.publish("c", "x") == Err(PublishError::Closed));
        for _ in 0..2 {
            assert_eq!(all.recv().unwrap().ack(), Ok(true));
        }
        drop(all);
        for _ in 0..3 {
            release.send(()).unwrap();
        }
        left = Some(closing.join().unwrap());
    });
    assert_eq!(left.unwrap().store, None);
    drop((handler, broker));

    let broker = quick().open(dir.path()).unwrap();
    assert_eq!(broker.subscriptions().unwrap(), ["s", "slow"]);
    assert_eq!(drain(&mut named(&broker, "s").open().unwrap()), first_attempts(2..3));
}

const CHILD: &str = "SLIPRING_TEST_CHILD";
const HOW: &str = "SLIPRING_TEST_HOW";
const DEADLY: u64 = 3;
const JOBS: u64 = 40;
const ATTEMPTS: u32 = 4;

fn jobs(broker: &Broker) -> SubscriptionBuilder<'_> {
    broker.subscription("jobs").name("jobs").max_delivery_attempts(ATTEMPTS)
}

/// Not a test by itself: the process that `die_of_one_message` starts. It deals with all jobs, and
/// dies of one of them.
#[test]
fn the_process_that_dies_of_one_message() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let how = std::env::var(HOW).unwrap();
    let watchdog = watchdog::watch(60);
    let done = Path::new(&dir).join("done");
    let path = done.clone();
    let deal_with = move |job: u64| {
        if job == DEADLY {
            std::process::abort();
        }
        std::fs::write(path.join(job.to_string()), "").unwrap();
    };
    let broker = quick().open(Path::new(&dir).join("broker")).unwrap();
    let is_done = || {
        let is_dealt_with = |job: u64| job == DEADLY || done.join(job.to_string()).exists();
        (0..JOBS).all(is_dealt_with) && broker.dead_letters("$dlq/jobs").count() > 0
    };
    if how == "handler" {
        let handler = jobs(&broker).handler(move |job| deal_with(number(job.payload())));
        let handler = handler.unwrap();
        watchdog.until("all jobs are dealt with", is_done);
        return drop(handler);
    }
    let mut jobs = jobs(&broker).open().unwrap();
    let most = if how == "batch" { 16 } else { 1 };
    while !is_done() {
        let batch = jobs.try_recv_batch(most).unwrap();
        for job in batch.iter() {
            deal_with(number(job.payload()));
            assert_eq!(job.ack(), Ok(true));
        }
    }
}

/// Starts that process again and again, until it lives to the end; how often it has died.
fn die_of_one_message(how: &str) -> u32 {
    let _watchdog = watchdog::watch(240);
    let dir = tempdir().unwrap();
    let (done, store) = (dir.path().join("done"), dir.path().join("broker"));
    std::fs::create_dir(&done).unwrap();
    let broker = quick().open(&store).unwrap();
    drop(jobs(&broker).open().unwrap());
    publish(&broker, "jobs", 0..JOBS);
    drop(broker);
    let mut deaths = 0;
    loop {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "the_process_that_dies_of_one_message", "--quiet"]);
        let child = child.env(CHILD, dir.path()).env(HOW, how).output().unwrap();
        if child.status.success() {
            break;
        }
        deaths += 1;
        assert!(deaths < 3 * ATTEMPTS, "{}", String::from_utf8_lossy(&child.stderr));
    }
    let broker = quick().open(&store).unwrap();
    let letters = broker.dead_letters("$dlq/jobs").list(9);
    let letters: Vec<_> = letters
        .iter()
        .map(|letter| {
            let letter = letter.view();
            let attempts = letter.attribute(DEAD_LETTER_ATTEMPTS).unwrap().parse().unwrap();
            (number(letter.payload()), attempts)
        })
        .collect();
    assert_eq!(letters, [(DEADLY, ATTEMPTS)]);
    let missing = (0..JOBS).filter(|job| *job != DEADLY && !done.join(job.to_string()).exists());
    assert_eq!(missing.collect::<Vec<_>>(), [0; 0]);
    deaths
}

#[test]
fn a_message_that_kills_its_handler_s_process_becomes_a_dead_letter() {
    let deaths = die_of_one_message("handler");
    assert!((ATTEMPTS..=ATTEMPTS + 1).contains(&deaths), "{deaths}");
}

#[test]
fn a_message_that_kills_the_process_that_receives_it_becomes_a_dead_letter() {
    let deaths = die_of_one_message("one");
    assert!((ATTEMPTS..=ATTEMPTS + 1).contains(&deaths), "{deaths}");
}

#[test]
fn a_message_that_kills_the_process_that_receives_a_batch_takes_no_other_with_it() {
    let deaths = die_of_one_message("batch");
    assert!((ATTEMPTS..=ATTEMPTS + 1).contains(&deaths), "{deaths}");
}

/// A broker whose topic `a/b` keeps its messages for an hour.
struct Aging {
    dir: tempfile::TempDir,
    clock: TestClock,
}

impl Aging {
    fn new() -> (Self, Broker) {
        let aging = Self { dir: tempdir().unwrap(), clock: TestClock::new() };
        let broker = aging.open();
        let config = TopicConfig::default().retention(Some(HOUR));
        broker.create_topic_with("a/b", config).unwrap();
        (aging, broker)
    }

    fn open(&self) -> Broker {
        self.open_at(self.dir.path())
    }

    fn open_at(&self, dir: &Path) -> Broker {
        let disk = DiskStore::builder().sync(SyncPolicy::Os).preallocate_bytes(0).reserve_bytes(0);
        let disk = disk.segment_bytes(64 << 10);
        Broker::builder().disk(disk).clock(&self.clock).memory_budget(256 << 10).open(dir).unwrap()
    }

    /// Lets all expire that was published before, and waits until the broker knows that.
    fn expire(&self, broker: &Broker, watchdog: &watchdog::Watchdog) {
        self.clock.advance(2 * HOUR);
        broker.publish("a/b", &u64::MAX.to_le_bytes()).unwrap();
        let before = broker.describe_topic("a/b").unwrap().partitions[0].next_offset - 1;
        watchdog.until("what is old has expired", || {
            let probe = broker.subscription("a/b").name("probe").start(Start::Earliest);
            let mut all = probe.open().unwrap();
            let first = loop {
                match all.try_recv() {
                    Ok(message) => break message.offset(),
                    Err(TryRecvError::Empty) => break 0,
                    Err(_) => {}
                }
            };
            drop(all);
            broker.delete_subscription("probe").unwrap();
            first >= before
        });
        self.until_removed(watchdog);
    }

    /// Waits until nothing is left to be removed: from then on the directory stays as it is.
    fn until_removed(&self, watchdog: &watchdog::Watchdog) {
        watchdog.until("old segments are gone", || {
            let files = std::fs::read_dir(self.dir.path().join("shard-000")).unwrap();
            let paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
            let count = |end: &str| {
                paths.iter().filter(|path| path.extension() == Some(end.as_ref())).count()
            };
            // The newest has no index yet.
            (count("log"), count("idx")) == (1, 0)
        });
    }

    /// From now on nothing is too old.
    fn keep_all(broker: &Broker) {
        broker.update_topic("a/b", TopicConfig::default().retention(None)).unwrap();
    }
}

const LAST: Told = Told::Message(u64::MAX, 1);

#[test]
fn what_was_told_as_expired_is_not_delivered_at_a_later_opening() {
    let watchdog = watchdog::watch(240);
    for publishes_more in [false, true] {
        let (aging, broker) = Aging::new();
        drop(named(&broker, "s").open().unwrap());
        publish(&broker, "a/b", 0..100);
        drop(broker);

        let broker = aging.open();
        aging.expire(&broker, &watchdog);
        let mut all = named(&broker, "s").open().unwrap();
        assert!(matches!(all.try_recv(), Err(TryRecvError::Recv(RecvError::Lagged(100)))));
        if publishes_more {
            publish(&broker, "a/b", 100..101);
            assert_eq!(drain(&mut all), [LAST, Told::Message(100, 1)]);
        }
        Aging::keep_all(&broker);
        drop((all, broker));

        for _ in 0..2 {
            let broker = aging.open();
            let mut all = named(&broker, "s").open().unwrap();
            let mut told = Vec::new();
            while let Ok(message) = all.try_recv() {
                told.push(number(message.payload()));
            }
            assert_eq!(told, if publishes_more { vec![] } else { vec![u64::MAX] });
        }
    }
}

#[test]
fn what_has_expired_is_not_delivered_at_an_opening_before_anything_is_let_go() {
    let watchdog = watchdog::watch(240);
    let (aging, broker) = Aging::new();
    drop(named(&broker, "s").open().unwrap());
    publish(&broker, "a/b", 0..100);
    aging.expire(&broker, &watchdog);
    broker.flush().unwrap();
    drop(broker);
    for opening in 0..3 {
        let broker = aging.open();
        let mut all = named(&broker, "s").open().unwrap();
        let told = if opening == 0 { vec![Told::Lost(100), LAST] } else { vec![] };
        assert_eq!(drain(&mut all), told, "{opening}");
    }
}

#[test]
fn a_message_that_expires_while_it_waits_for_another_attempt_is_told_as_lost() {
    let watchdog = watchdog::watch(240);
    let (aging, broker) = Aging::new();
    let mut all = named(&broker, "s").open().unwrap();
    publish(&broker, "a/b", 0..2);
    all.recv().unwrap().nack(Some(Duration::ZERO)).unwrap();
    assert_eq!(number(all.recv().unwrap().payload()), 0);
    aging.expire(&broker, &watchdog);
    assert_eq!(drain(&mut all)[0], Told::Lost(1));
    drop((all, broker));
    let broker = aging.open();
    assert_eq!(drain(&mut named(&broker, "s").open().unwrap()), []);
}

#[test]
fn a_subscription_is_told_what_was_removed_while_it_was_away() {
    let watchdog = watchdog::watch(240);
    let (aging, broker) = Aging::new();
    drop(named(&broker, "s").open().unwrap());
    drop(broker.subscription("quiet").name("q").open().unwrap());
    publish(&broker, "a/b", 0..10_000);
    drop(broker);
    let broker = aging.open();
    aging.clock.advance(2 * HOUR);
    publish(&broker, "a/b", 10_000..10_001);
    aging.until_removed(&watchdog);
    // As if the process had been killed here: nothing is noted but what was.
    let elsewhere = what_a_kill_leaves(aging.dir.path());
    drop(broker);

    let broker = aging.open_at(elsewhere.path());
    let mut all = named(&broker, "s").open().unwrap();
    let told = drain(&mut all);
    assert_eq!(told.last(), Some(&Told::Message(10_000, 1)));
    let lost = told[..told.len() - 1].iter().map(|told| match told {
        Told::Lost(count) => *count,
        Told::Message(..) => panic!("{told:?}"),
    });
    assert_eq!(lost.sum::<u64>(), 10_000);
    // Of which nothing was for it.
    let mut quiet = broker.subscription("quiet").name("q").open().unwrap();
    broker.publish("quiet", &7_u64.to_le_bytes()).unwrap();
    assert_eq!(drain(&mut quiet), [Told::Message(7, 1)]);
    drop((all, quiet, broker));
    let broker = aging.open_at(elsewhere.path());
    assert_eq!(drain(&mut named(&broker, "s").open().unwrap()), []);
}

#[test]
fn a_loss_is_told_before_what_comes_after_it() {
    let watchdog = watchdog::watch(240);
    let (aging, broker) = Aging::new();
    let keeps = TopicConfig::default().retention(None);
    broker.create_topic_with("a/kept", keeps).unwrap();
    drop(named(&broker, "s").open().unwrap());
    let mut expected = Vec::new();
    for number in 0..50 {
        publish(&broker, "a/b", 0..3);
        publish(&broker, "a/kept", number..number + 1);
        expected.extend([Told::Lost(3), Told::Message(number, 1)]);
    }
    drop(broker);
    let broker = aging.open();
    aging.expire(&broker, &watchdog);
    expected.push(LAST);
    assert_eq!(drain(&mut named(&broker, "s").open().unwrap()), expected);
}

#[test]
fn a_new_subscription_is_not_told_what_was_gone_before_it_began() {
    let watchdog = watchdog::watch(240);
    // Some segments, which are removed; or less than one, whose messages expire where they are.
    for old in [10_000, 100] {
        let (aging, broker) = Aging::new();
        publish(&broker, "a/b", 0..old);
        publish(&broker, "rare", 0..1);
        drop(broker);
        let broker = aging.open();
        aging.expire(&broker, &watchdog);
        for reopened in [false, true] {
            let elsewhere;
            let broker = if reopened {
                broker.flush().unwrap();
                elsewhere = what_a_kill_leaves(aging.dir.path());
                aging.open_at(elsewhere.path())
            } else {
                broker.clone()
            };
            for start in [Start::Earliest, Start::Time(0), Start::Offset(0), Start::Last(1)] {
                let mut plain = broker.subscription("a/*").start(start).open().unwrap();
                assert_eq!(drain(&mut plain), [LAST], "{start:?}");
                let mut all = named(&broker, "new").start(start).open().unwrap();
                assert_eq!(drain(&mut all), [LAST], "{start:?}");
                drop(all);
                broker.delete_subscription("new").unwrap();
                let mut rare = broker.subscription("rare").start(start).open().unwrap();
                let lost = drain(&mut rare).into_iter().any(|told| matches!(told, Told::Lost(_)));
                assert!(!lost, "{start:?}");
            }
        }
    }
}

#[test]
fn what_is_asked_of_an_existing_name_is_checked_and_refused_where_it_keeps_another() {
    let in_memory = Broker::in_memory();
    let dir = tempdir().unwrap();
    let durable = quick().open(dir.path()).unwrap();
    let made = |broker: &Broker| {
        let made = named(broker, "s").filter("attributes.kind = \"x\"").capacity(64);
        let made = made.visibility_timeout(LONG).max_delivery_attempts(7).max_outstanding(9);
        let made = made.backoff(Backoff::new(LONG, LONG)).dead_letter_topic("graves");
        drop(made.open().unwrap());
    };
    made(&in_memory);
    made(&durable);
    drop(durable);
    let durable = quick().open(dir.path()).unwrap();
    for broker in [&in_memory, &durable] {
        let name = || named(broker, "s");
        let refused = |asked: SubscriptionBuilder<'_>, setting| {
            let error = asked.open().unwrap_err();
            assert_eq!(error, SubscribeError::DifferentSetting { setting });
            assert!(error.to_string().contains(setting), "{error}");
        };
        refused(name().filter("attributes:kind"), "filter");
        refused(name().capacity(65), "capacity");
        refused(name().visibility_timeout(2 * LONG), "visibility_timeout");
        refused(name().max_delivery_attempts(8), "max_delivery_attempts");
        refused(name().max_outstanding(8), "max_outstanding");
        refused(name().backoff(Backoff::new(LONG, 2 * LONG)), "backoff");
        refused(name().backoff(Backoff::new(LONG, LONG).jitter()), "backoff");
        refused(name().dead_letter_topic("others"), "dead_letter_topic");
        refused(name().keys_overtake(), "keys_overtake");
        refused(name().filter_fn(|_| true), "filter");
        let handled = name().visibility_timeout(2 * LONG).handler(|_| {});
        assert!(matches!(handled, Err(SubscribeError::DifferentSetting { .. })));

        let invalid = |asked: SubscriptionBuilder<'_>| asked.open().unwrap_err();
        let too_long = invalid(name().visibility_timeout(Duration::from_secs(601)));
        let out_of_range =
            SubscribeError::OutOfRange { setting: "visibility_timeout", min: 10, max: 600_000 };
        assert_eq!(too_long, out_of_range);
        for asked in [
            name().visibility_timeout(Duration::from_millis(9)),
            name().max_delivery_attempts(0),
            name().max_outstanding(0),
            name().capacity(0),
        ] {
            assert!(matches!(invalid(asked), SubscribeError::OutOfRange { .. }));
        }
        assert!(matches!(invalid(name().filter("=")), SubscribeError::InvalidFilter(_)));
        let grave = name().dead_letter_topic("//");
        assert!(matches!(invalid(grave), SubscribeError::InvalidDeadLetterTopic(_)));

        // Repeated, left out, or of each consumer.
        made(broker);
        drop(name().open().unwrap());
        drop(name().start(Start::Earliest).wait(WaitStrategy::Park).open().unwrap());
        let breaker = CircuitBreaker { failures: 3.try_into().unwrap(), cool_down: LONG };
        let handled = name().dedicated_thread().circuit_breaker(breaker).on_lagged(|_| {});
        drop(handled.handler(|_| {}).unwrap());
    }
}

#[test]
fn of_two_filter_functions_the_first_stays() {
    let broker = Broker::in_memory();
    let with = |wants: bool| named(&broker, "s").filter_fn(move |_| wants);
    drop(with(true).open().unwrap());
    let mut again = with(false).open().unwrap();
    publish(&broker, "a/b", 0..1);
    assert_eq!(drain(&mut again), first_attempts(0..1));
}

#[test]
fn an_ordering_key_waits_for_its_message_that_failed_also_at_a_later_opening() {
    let dir = tempdir().unwrap();
    let open = || quick().open(dir.path()).unwrap();
    let broker = open();
    let mut all = named(&broker, "s").open().unwrap();
    for (number, key) in (0_u64..).zip(["k", "l", "k", "l", "k"]) {
        let payload = number.to_le_bytes();
        broker.publish("a/b", NewMessage::new(&payload).key(key)).unwrap();
    }
    let taken: Vec<_> = (0..4).map(|_| number(all.recv().unwrap().payload())).collect();
    assert_eq!(taken, [0, 1, 2, 3]);
    drop((all, broker));

    let broker = open();
    let mut all = named(&broker, "s").open().unwrap();
    let acker = all.acker().unwrap();
    let mut received = || {
        let received = all.try_recv().ok()?;
        Some((number(received.payload()), received.attempt(), received.ack_id().unwrap()))
    };
    let (first, second) = (received().unwrap(), received().unwrap());
    assert_eq!(((first.0, first.1), (second.0, second.1)), ((0, 2), (1, 2)));
    assert!(received().is_none(), "the others wait for these");
    assert_eq!(acker.ack(&first.2), Ok(true));
    let third = received().unwrap();
    assert_eq!((third.0, third.1), (2, 2));
    assert!(received().is_none());
    assert_eq!(acker.ack(&second.2), Ok(true));
    assert_eq!(received().map(|(number, attempt, _)| (number, attempt)), Some((3, 2)));
    assert_eq!(acker.ack(&third.2), Ok(true));
    assert_eq!(received().map(|(number, attempt, _)| (number, attempt)), Some((4, 1)));
}

#[test]
fn a_message_on_which_handlers_hang_while_their_brokers_close_becomes_a_dead_letter() {
    let watchdog = watchdog::watch(120);
    let dir = tempdir().unwrap();
    let broker = quick().open(dir.path()).unwrap();
    drop(jobs(&broker).open().unwrap());
    publish(&broker, "jobs", 0..1);
    drop(broker);
    let (mut hanging, mut openings) = (Vec::new(), 0);
    loop {
        let broker = quick().open(dir.path()).unwrap();
        let (entered, entry) = channel();
        let (release, released) = channel::<()>();
        let handler = jobs(&broker).handler(move |_| {
            entered.send(()).unwrap();
            let _ = released.recv();
        });
        handler.unwrap().detach();
        let letters = broker.dead_letters("$dlq/jobs");
        let mut has_entered = false;
        watchdog.until("it hangs, or is a dead letter", || {
            has_entered = entry.try_recv().is_ok();
            has_entered || letters.count() == 1
        });
        if !has_entered {
            break;
        }
        openings += 1;
        assert!(openings <= ATTEMPTS + 1);
        assert!(broker.close(Duration::ZERO).handler_running);
        // It ends with the test.
        hanging.push(release);
    }
    assert!(openings >= ATTEMPTS);
}

/// A file system on which nothing can be written to the cursor journal while `is_full`.
struct FullForCursors {
    real: RealFs,
    is_full: Arc<AtomicBool>,
}

struct CursorFile {
    real: Box<dyn FsFile>,
    is_full: Arc<AtomicBool>,
}

fn check(is_full: &AtomicBool) -> io::Result<()> {
    if is_full.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
}

impl Fs for FullForCursors {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Box<dyn FsFile>> {
        if !path.starts_with("cursors") {
            return self.real.open(path, how);
        }
        if how == OpenHow::CreateNew {
            check(&self.is_full)?;
        }
        let (real, is_full) = (self.real.open(path, how)?, Arc::clone(&self.is_full));
        Ok(Box::new(CursorFile { real, is_full }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.real.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.real.remove(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<FsEntry>> {
        self.real.list(dir)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.real.create_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.real.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FsLock>> {
        self.real.lock(path)
    }
    fn disk_bytes(&self) -> io::Result<u64> {
        self.real.disk_bytes()
    }
}

impl FsFile for CursorFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.real.read_at(buf, at)
    }
    fn write_at(&self, bufs: &[io::IoSlice<'_>], at: u64) -> io::Result<usize> {
        check(&self.is_full)?;
        self.real.write_at(bufs, at)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.real.sync_data()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.real.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.real.len()
    }
    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        self.real.allocate(at, len)
    }
    fn drop_cache(&self) -> io::Result<()> {
        self.real.drop_cache()
    }
}

#[test]
fn on_a_full_disk_a_subscription_is_deleted_or_sought_as_a_whole_or_not_at_all() {
    let dir = tempdir().unwrap();
    let is_full = Arc::new(AtomicBool::new(false));
    let open = || {
        let fs = FullForCursors {
            real: RealFs::open(dir.path()).unwrap(),
            is_full: Arc::clone(&is_full),
        };
        quick().open_on(Arc::new(fs), 1).unwrap()
    };
    let broker = open();
    let mut all = named(&broker, "s").open().unwrap();
    drop(named(&broker, "gone").open().unwrap());
    publish(&broker, "a/b", 0..4);
    is_full.store(true, Ordering::SeqCst);
    assert!(matches!(all.seek(Start::Offset(3)), Err(SeekError::Store(_))));
    // What is told as done is done.
    broker.delete_subscription("gone").unwrap();
    assert_eq!(broker.subscriptions().unwrap(), ["s"]);
    is_full.store(false, Ordering::SeqCst);
    drop((all, broker));

    let broker = open();
    assert_eq!(broker.subscriptions().unwrap(), ["s"]);
    assert_eq!(drain(&mut named(&broker, "s").open().unwrap()), first_attempts(0..4));
}
