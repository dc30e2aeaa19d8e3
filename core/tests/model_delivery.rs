//! Publish, deliver, acknowledge, give back, extend, expire, seek, leave and return, close and crash,
//! against a model that keeps everything in maps. Written against the public API alone, and for any
//! way in which a broker is opened.

mod killed;

use killed::what_a_kill_leaves;
use proptest::prelude::*;
use slipring::store::{DiskStore, SyncPolicy};
use slipring::{
    AckError, AckId, Acker, Broker, DeliveryMode, RecvError, Start, Subscription, TestClock,
    TryRecvError,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tempfile::{TempDir, tempdir};

const VISIBILITY_MS: u64 = 40;
const MAX_ATTEMPTS: u32 = 3;
const OUTSTANDING: usize = 12;
const NAME: &str = "model";

/// How a broker is opened that is to keep this contract: anew, or in a directory where it was before.
type Open = fn(&TestClock, &Path) -> Broker;

fn in_memory(clock: &TestClock, _dir: &Path) -> Broker {
    Broker::builder().clock(clock).build().expect("valid settings")
}

fn on_disk(clock: &TestClock, dir: &Path) -> Broker {
    let disk = DiskStore::builder().sync(SyncPolicy::Os).preallocate_bytes(0).reserve_bytes(0);
    Broker::builder().clock(clock).disk(disk).open(dir).expect("opens")
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[derive(Debug, Clone)]
enum Step {
    Publish(u8),
    Receive,
    Ack(prop::sample::Index),
    Nack(prop::sample::Index, u64),
    Extend(prop::sample::Index, u64),
    GiveUp(prop::sample::Index),
    Pass(u64),
    Seek(u64),
    Return,
    /// Closes the broker, or kills its process, and opens it again.
    Restart {
        killed: bool,
    },
}

fn step(restarts: u32) -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => (1u8..6).prop_map(Step::Publish),
        10 => Just(Step::Receive),
        5 => index().prop_map(Step::Ack),
        3 => (index(), 0u64..100).prop_map(|(index, delay)| Step::Nack(index, delay)),
        3 => (index(), 10u64..100).prop_map(|(index, by)| Step::Extend(index, by)),
        1 => index().prop_map(Step::GiveUp),
        5 => (0u64..60).prop_map(Step::Pass),
        1 => (0u64..40).prop_map(Step::Seek),
        1 => Just(Step::Return),
        restarts => any::<bool>().prop_map(|killed| Step::Restart { killed }),
    ]
}

/// What a message that was received and is not settled waits for.
#[derive(Debug, Clone, Copy)]
struct Taken {
    attempt: u32,
    /// When its lease or its pause ends.
    until: u64,
    /// By which it is leased, if it is.
    lease: Option<AckId>,
}

struct World {
    how: Open,
    dir: TempDir,
    clock: TestClock,
    broker: Broker,
    subscription: Option<Subscription>,
    published: u64,
    /// The next message that was not received since the last seek.
    next: u64,
    now: u64,
    taken: BTreeMap<u64, Taken>,
    /// Dead letters, by message: after a seek, one may become several.
    dead: BTreeMap<u64, u64>,
    /// All leases there have been.
    leases: Vec<(u64, AckId)>,
}

impl World {
    fn new(open: Open) -> Self {
        let clock = TestClock::new();
        let dir = tempdir().expect("a directory");
        let broker = open(&clock, dir.path());
        let mut world = Self {
            how: open,
            dir,
            clock,
            broker,
            subscription: None,
            published: 0,
            next: 0,
            now: 0,
            taken: BTreeMap::new(),
            dead: BTreeMap::new(),
            leases: Vec::new(),
        };
        world.open();
        world
    }

    fn open(&mut self) {
        let builder = self.broker.subscription("t").name(NAME).capacity(4);
        let builder =
            builder.delivery(DeliveryMode::AtLeastOnce).visibility_timeout(ms(VISIBILITY_MS));
        let builder = builder.max_delivery_attempts(MAX_ATTEMPTS).max_outstanding(OUTSTANDING);
        self.subscription = Some(builder.open().expect("it is free"));
    }

    fn subscription(&mut self) -> &mut Subscription {
        self.subscription.as_mut().expect("it is open")
    }

    fn acker(&mut self) -> Acker {
        self.subscription().acker().expect("it delivers at least once")
    }

    /// Whether the lease is the present one of its message, whether or not it is over.
    fn is_present(&self, number: u64, id: AckId) -> bool {
        self.taken.get(&number).is_some_and(|taken| taken.lease == Some(id))
    }

    fn is_valid(&self, number: u64, id: AckId) -> bool {
        self.is_present(number, id) && self.taken[&number].until > self.now
    }

    /// Messages that may come now, again.
    fn due(&self) -> Vec<u64> {
        let is_due = |taken: &Taken| taken.until <= self.now;
        self.taken.iter().filter(|(_, taken)| is_due(taken)).map(|(&number, _)| number).collect()
    }

    fn receive(&mut self) -> Result<(), TestCaseError> {
        // Those without an attempt left become dead letters on the way: all before a message that
        // is not due, or before there is none.
        let (mut due, mut lost): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        for number in self.due() {
            let spent = self.taken[&number].attempt == MAX_ATTEMPTS;
            if spent { lost.push(number) } else { due.push(number) }
        }
        let received = match self.subscription().try_recv() {
            Ok(message) => {
                let number = u64::from_le_bytes(message.payload().try_into().expect("8 bytes"));
                prop_assert_eq!(message.offset(), number);
                Some((number, message.attempt(), message.ack_id().expect("it is leased")))
            }
            Err(TryRecvError::Empty) => None,
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        };
        let letters = self.letters();
        let mut buried = 0;
        for &number in &lost {
            let dead = self.dead.entry(number).or_default();
            if letters.get(&number) == Some(&(*dead + 1)) {
                *dead += 1;
                buried += 1;
                self.taken.remove(&number);
            }
        }
        self.dead.retain(|_, count| *count > 0);
        prop_assert_eq!(&letters, &self.dead, "a message that had attempts left");
        match received {
            Some((number, attempt, lease)) => {
                let until = self.now + VISIBILITY_MS;
                if due.contains(&number) {
                    prop_assert_eq!(attempt, self.taken[&number].attempt + 1);
                } else {
                    prop_assert!(due.is_empty(), "{:?} are due, and {} comes", due, number);
                    prop_assert_eq!(buried, lost.len());
                    prop_assert_eq!((number, attempt), (self.next, 1), "in order, none twice");
                    self.next += 1;
                }
                self.taken.insert(number, Taken { attempt, until, lease: Some(lease) });
                self.leases.push((number, lease));
            }
            None => {
                let is_leased = |taken: &&Taken| taken.lease.is_some() && taken.until > self.now;
                // At the limit also what is due waits.
                if self.taken.values().filter(is_leased).count() < OUTSTANDING {
                    prop_assert!(due.is_empty(), "{:?} are due", due);
                    prop_assert_eq!(buried, lost.len());
                    prop_assert_eq!(self.next, self.published);
                }
            }
        }
        Ok(())
    }

    /// The dead letters there are, by message.
    fn letters(&self) -> BTreeMap<u64, u64> {
        let mut letters = BTreeMap::new();
        for letter in self.broker.dead_letters(&format!("$dlq/{NAME}")).list(usize::MAX) {
            let number = u64::from_le_bytes(letter.payload().try_into().expect("8 bytes"));
            *letters.entry(number).or_default() += 1;
        }
        letters
    }

    fn run(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Publish(count) => {
                for _ in 0..count {
                    let payload = self.published.to_le_bytes();
                    self.broker.publish("t", &payload).expect("publishes");
                    self.published += 1;
                }
            }
            Step::Receive => self.receive()?,
            Step::Ack(index) if !self.leases.is_empty() => {
                let (number, id) = *index.get(&self.leases);
                let counts = self.is_present(number, id);
                prop_assert_eq!(self.acker().ack(&id), Ok(counts));
                if counts {
                    self.taken.remove(&number);
                }
            }
            Step::Nack(index, delay) if !self.leases.is_empty() => {
                let (number, id) = *index.get(&self.leases);
                let valid = self.is_valid(number, id);
                let result = self.acker().nack(&id, Some(ms(delay)));
                prop_assert_eq!(result, valid.then_some(()).ok_or(AckError::Stale));
                if valid {
                    let until = self.now + delay;
                    let attempt = self.taken[&number].attempt;
                    if attempt == MAX_ATTEMPTS {
                        self.taken.remove(&number);
                        *self.dead.entry(number).or_default() += 1;
                    } else {
                        self.taken.insert(number, Taken { attempt, until, lease: None });
                    }
                }
            }
            Step::Extend(index, by) if !self.leases.is_empty() => {
                let (number, id) = *index.get(&self.leases);
                let valid = self.is_valid(number, id);
                let result = self.acker().modify_ack_deadline(&id, ms(by));
                prop_assert_eq!(result, valid.then_some(()).ok_or(AckError::Stale));
                if let Some(taken) = self.taken.get_mut(&number).filter(|_| valid) {
                    taken.until = self.now + by;
                }
            }
            Step::GiveUp(index) if !self.leases.is_empty() => {
                let (number, id) = *index.get(&self.leases);
                let valid = self.is_valid(number, id);
                let result = self.acker().dead_letter(&id, "given up");
                prop_assert_eq!(result, valid.then_some(()).ok_or(AckError::Stale));
                if valid {
                    self.taken.remove(&number);
                    *self.dead.entry(number).or_default() += 1;
                }
            }
            Step::Pass(time) => {
                self.now += time;
                self.clock.advance(ms(time));
            }
            Step::Seek(to) => {
                let to = to.min(self.published);
                self.subscription().seek(Start::Offset(to)).expect("it is open");
                self.taken.clear();
                self.next = to;
            }
            Step::Return => {
                self.subscription = None;
                self.open();
                for taken in self.taken.values_mut() {
                    if taken.lease.take().is_some() {
                        taken.until = self.now;
                    }
                }
            }
            Step::Restart { killed } => {
                let mut dir = None;
                if killed {
                    // A kill may take what was settled last. That it does is seen elsewhere; here
                    // all is to be known.
                    self.broker.flush().expect("is written");
                    dir = Some(what_a_kill_leaves(self.dir.path()));
                }
                self.subscription = None;
                self.broker.close(Duration::ZERO);
                self.dir = dir.unwrap_or_else(|| what_a_kill_leaves(self.dir.path()));
                self.broker = (self.how)(&self.clock, self.dir.path());
                self.open();
                for taken in self.taken.values_mut() {
                    (taken.lease, taken.until) = (None, self.now);
                }
            }
            Step::Ack(_) | Step::Nack(..) | Step::Extend(..) | Step::GiveUp(_) => {}
        }
        prop_assert_eq!(&self.letters(), &self.dead);
        let unsettled = self.broker.describe_subscription(NAME).expect("it is there").unsettled;
        prop_assert_eq!(unsettled, self.taken.len() as u64);
        Ok(())
    }

    /// In the end all that is not settled comes, and then nothing more.
    fn finish(&mut self) -> Result<(), TestCaseError> {
        let mut left = 4 * MAX_ATTEMPTS as u64 * (self.published + 1);
        while !self.taken.is_empty() || self.next < self.published {
            self.now += 1000;
            self.clock.advance(ms(1000));
            self.receive()?;
            let (number, id) = match self.leases.last() {
                Some(&lease) => lease,
                None => continue,
            };
            if self.is_valid(number, id) {
                prop_assert_eq!(self.acker().ack(&id), Ok(true));
                self.taken.remove(&number);
            }
            left -= 1;
            prop_assert!(left > 0, "{:?} never come", self.taken);
        }
        let nothing = self.subscription().try_recv().map(|message| message.offset());
        prop_assert_eq!(nothing, Err(TryRecvError::Empty));
        self.broker.close(Duration::ZERO);
        let closed = self.subscription().try_recv().map(|message| message.offset());
        prop_assert_eq!(closed, Err(TryRecvError::Recv(RecvError::Closed)));
        Ok(())
    }
}

fn run(open: Open, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut world = World::new(open);
    for step in steps {
        world.run(step)?;
    }
    world.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_broker_in_memory_does_what_a_model_does(
        steps in prop::collection::vec(step(0), 0..120),
    ) {
        run(in_memory, steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_broker_with_a_directory_does_what_a_model_does(
        steps in prop::collection::vec(step(2), 0..120),
    ) {
        run(on_disk, steps)?;
    }
}
