//! The ledger against a model that looks at every message each time.

use proptest::prelude::*;
use slipring::internals::{Grant, Ledger, Position, Stale};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const VISIBILITY: u64 = 40;
const MANY: usize = usize::MAX;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Leased { until: u64 },
    Waiting { until: u64 },
    Held,
}

#[derive(Debug, Clone, Copy)]
struct Message {
    state: State,
    key: u32,
    attempt: u32,
    generation: u32,
    /// It has failed and is not settled.
    failed: bool,
}

/// What the ledger should be: all messages that were taken and not settled.
#[derive(Debug, Default)]
struct Model {
    unsettled: BTreeMap<u64, Message>,
    next: u64,
    now: u64,
    /// All leases ever given, to be used again when they are stale.
    grants: Vec<Grant>,
}

impl Model {
    fn is_blocked(&self, sequence: u64, key: u32) -> bool {
        let same = |(_, message): &(&u64, &Message)| message.key == key && message.failed;
        key != 0 && self.unsettled.range(..sequence).any(|entry| same(&entry))
    }

    /// Whether a deadline or pause of it is over.
    fn is_over(&self, message: &Message) -> bool {
        match message.state {
            State::Leased { until } | State::Waiting { until } => until <= self.now,
            State::Held => false,
        }
    }

    fn lease_of(&mut self, grant: Grant) -> Option<&mut Message> {
        let now = self.now;
        self.unsettled.get_mut(&grant.sequence).filter(|message| {
            message.generation == grant.generation
                && matches!(message.state, State::Leased { until } if until > now)
        })
    }

    fn settle(&mut self, sequence: u64) -> bool {
        let Some(message) = self.unsettled.remove(&sequence) else { return false };
        self.let_go(message.key);
        true
    }

    /// What is held by no message any more waits for nothing but its turn.
    fn let_go(&mut self, key: u32) {
        let held: Vec<u64> = self
            .unsettled
            .iter()
            .filter(|(_, message)| message.key == key && message.state == State::Held)
            .map(|(&sequence, _)| sequence)
            .collect();
        for sequence in held {
            if !self.is_blocked(sequence, key)
                && let Some(message) = self.unsettled.get_mut(&sequence)
            {
                message.state = State::Waiting { until: 0 };
            }
        }
    }

    fn floor(&self) -> u64 {
        self.unsettled.keys().next().copied().unwrap_or(self.next)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Take { skip: u64, key: u32 },
    TakeSettled { skip: u64 },
    Due,
    DueWithoutRoom,
    Ack(prop::sample::Index),
    Nack(prop::sample::Index, u64),
    Extend(prop::sample::Index, u64),
    Settle(u64),
    Pass(u64),
    ExpireBelow(u64),
    ExpireAll,
    Restore,
    Seek(u64),
    Tell,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    let time = || prop_oneof![Just(0), 0u64..200, 0u64..70_000];
    // Some are far behind those that come before.
    let skip = || prop_oneof![8 => 0u64..3, 1 => 500u64..3000];
    prop_oneof![
        8 => (skip(), 0u32..4).prop_map(|(skip, key)| Step::Take { skip, key }),
        1 => skip().prop_map(|skip| Step::TakeSettled { skip }),
        6 => Just(Step::Due),
        3 => Just(Step::DueWithoutRoom),
        6 => index().prop_map(Step::Ack),
        4 => (index(), time()).prop_map(|(index, delay)| Step::Nack(index, delay)),
        4 => (index(), time()).prop_map(|(index, by)| Step::Extend(index, by)),
        1 => (0u64..100).prop_map(Step::Settle),
        6 => prop_oneof![0u64..60, 0u64..5000].prop_map(Step::Pass),
        1 => (0u64..120).prop_map(Step::ExpireBelow),
        1 => Just(Step::ExpireAll),
        1 => Just(Step::Restore),
        1 => (0u64..100).prop_map(Step::Seek),
        3 => Just(Step::Tell),
    ]
}

/// Takes the next due message from both.
fn due(ledger: &mut Ledger, model: &mut Model) -> Result<bool, TestCaseError> {
    let Some(grant) = ledger.due(ms(model.now), ms(model.now + VISIBILITY), MANY) else {
        // All that is over must have been held by others.
        let over: Vec<u64> = model
            .unsettled
            .iter()
            .filter(|(_, message)| model.is_over(message))
            .map(|(&sequence, _)| sequence)
            .collect();
        for &sequence in &over {
            let message = model.unsettled.get_mut(&sequence).expect("listed just above");
            message.failed |= matches!(message.state, State::Leased { .. });
        }
        for sequence in over {
            let key = model.unsettled[&sequence].key;
            prop_assert!(model.is_blocked(sequence, key), "{} was due and is not given", sequence);
            let message = model.unsettled.get_mut(&sequence).expect("listed just above");
            message.state = State::Held;
        }
        return Ok(false);
    };
    given(model, grant)?;
    Ok(true)
}

/// The same where no more may be leased than are.
fn due_without_room(ledger: &mut Ledger, model: &mut Model) -> Result<(), TestCaseError> {
    let before = ledger.leased();
    if let Some(grant) = ledger.due(ms(model.now), ms(model.now + VISIBILITY), before) {
        prop_assert!(ledger.leased() <= before, "{:?} takes no room", grant);
        return given(model, grant);
    }
    // All leases that are over have been seen.
    let now = model.now;
    let leases = model.unsettled.values_mut().filter_map(|message| match message.state {
        State::Leased { until } => Some((until <= now, &mut message.failed)),
        _ => None,
    });
    let live = leases.filter_map(|(is_over, failed)| {
        *failed |= is_over;
        (!is_over).then_some(())
    });
    prop_assert_eq!(ledger.leased(), live.count());
    Ok(())
}

/// A message that is due has been leased anew.
fn given(model: &mut Model, grant: Grant) -> Result<(), TestCaseError> {
    let found = model.unsettled.get(&grant.sequence).copied();
    prop_assert!(found.is_some(), "{:?} is settled", grant);
    let mut message = found.expect("just asserted");
    prop_assert!(model.is_over(&message), "{:?} came early: {:?}", grant, message);
    prop_assert!(!model.is_blocked(grant.sequence, message.key), "{:?} overtakes", grant);
    message.failed |= matches!(message.state, State::Leased { .. });
    message.attempt += 1;
    prop_assert_eq!(grant.attempt, message.attempt);
    prop_assert!(grant.generation > message.generation);
    message.generation = grant.generation;
    message.state = State::Leased { until: model.now + VISIBILITY };
    model.unsettled.insert(grant.sequence, message);
    model.grants.push(grant);
    Ok(())
}

fn run(start: u64, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut ledger = Ledger::new(start);
    let mut model = Model { next: start, ..Model::default() };
    let mut told = Position::default();
    for step in steps {
        match step {
            Step::Take { skip, key } => {
                // As a consumer does: what is due goes first, so that all failures are known.
                while due(&mut ledger, &mut model)? {}
                let sequence = model.next + skip;
                model.next = sequence + 1;
                let blocked = model.is_blocked(sequence, key);
                let grant = ledger.lease(sequence, key, ms(model.now + VISIBILITY));
                prop_assert_eq!(grant.is_none(), blocked);
                model.grants.extend(grant);
                let until = model.now + VISIBILITY;
                let state = if blocked { State::Held } else { State::Leased { until } };
                let (attempt, generation) = (u32::from(!blocked), 1);
                let message = Message { state, key, attempt, generation, failed: false };
                model.unsettled.insert(sequence, message);
            }
            Step::TakeSettled { skip } => {
                let sequence = model.next + skip;
                model.next = sequence + 1;
                ledger.take_settled(sequence);
            }
            Step::Due => {
                due(&mut ledger, &mut model)?;
            }
            Step::DueWithoutRoom => due_without_room(&mut ledger, &mut model)?,
            Step::Ack(index) if !model.grants.is_empty() => {
                let grant = *index.get(&model.grants);
                let known = model.unsettled.get(&grant.sequence);
                let counts = known.is_some_and(|known| known.generation == grant.generation);
                prop_assert_eq!(ledger.ack(grant.sequence, grant.generation), counts);
                if counts {
                    model.settle(grant.sequence);
                }
            }
            Step::Nack(index, delay) if !model.grants.is_empty() => {
                let grant = *index.get(&model.grants);
                let (now, until) = (model.now, model.now + delay);
                let result = ledger.nack(grant.sequence, grant.generation, ms(now), ms(until));
                let lease = model.lease_of(grant);
                prop_assert_eq!(result, lease.as_ref().map(|_| ()).ok_or(Stale));
                if let Some(message) = lease {
                    message.state = State::Waiting { until };
                    message.failed = true;
                    message.generation += 1;
                }
            }
            Step::Extend(index, by) if !model.grants.is_empty() => {
                let grant = *index.get(&model.grants);
                let (now, until) = (model.now, model.now + by);
                let result = ledger.extend(grant.sequence, grant.generation, ms(now), ms(until));
                let lease = model.lease_of(grant);
                prop_assert_eq!(result, lease.as_ref().map(|_| ()).ok_or(Stale));
                if let Some(message) = lease {
                    message.state = State::Leased { until };
                }
            }
            Step::Settle(sequence) => {
                prop_assert_eq!(ledger.settle(sequence), model.settle(sequence));
            }
            Step::Pass(time) => model.now += time,
            Step::ExpireBelow(low) => {
                let old: Vec<u64> = model.unsettled.range(..low).map(|(&s, _)| s).collect();
                let expired = ledger.expire_below(low);
                prop_assert_eq!(expired as usize, old.len());
                for sequence in old {
                    model.settle(sequence);
                }
                if low > model.next {
                    model.next = low;
                }
            }
            Step::ExpireAll => {
                ledger.expire_all();
                let now = model.now;
                for message in model.unsettled.values_mut() {
                    if let State::Leased { until } = &mut message.state {
                        *until = now.min(*until);
                    }
                }
            }
            Step::Restore => {
                ledger.change_all();
                told = ledger.changes();
                // Without keys, as nobody tells them.
                ledger = Ledger::restored(told.clone(), false);
                // What comes after the last one that was settled or delivered is taken anew.
                let anew = model.unsettled.split_off(&ledger.next());
                prop_assert!(anew.values().all(|message| message.attempt == 0));
                let behind = model.next - ledger.next();
                prop_assert_eq!(anew.len() as u64, behind, "something settled is forgotten");
                model.next = ledger.next();
                model.grants.clear();
                for message in model.unsettled.values_mut() {
                    message.state = State::Waiting { until: 0 };
                    (message.generation, message.key) = (0, 0);
                    message.failed = message.attempt > 0;
                }
            }
            Step::Seek(to) => {
                ledger = Ledger::new(to);
                model = Model { next: to, now: model.now, ..Model::default() };
                told = Position::default();
            }
            Step::Tell => {
                let changes = ledger.changes();
                let attempts = changes.attempts.into_iter().chain(told.attempts);
                let attempts = attempts.filter(|(at, _)| model.unsettled.contains_key(at));
                // What was told before is not above what is told anew.
                let mut all = BTreeMap::new();
                for (sequence, next) in attempts {
                    all.entry(sequence).or_insert(next);
                }
                told = Position { attempts: all, ..changes };
                let expected = model.unsettled.iter().filter(|(_, message)| message.attempt > 0);
                let expected = expected.map(|(&at, message)| (at, message.attempt as u16 + 1));
                prop_assert_eq!(&told.attempts, &expected.collect::<BTreeMap<_, _>>());
                prop_assert_eq!(told.floor, model.floor());
                for sequence in told.floor..model.next {
                    let is_settled = !model.unsettled.contains_key(&sequence);
                    prop_assert_eq!(told.settled.contains(sequence), is_settled);
                }
            }
            Step::Ack(_) | Step::Nack(..) | Step::Extend(..) => {}
        }
        // Of those that are over, the ledger may have seen some.
        let leased = |message: &&Message| matches!(message.state, State::Leased { .. });
        let (most, over) = model
            .unsettled
            .values()
            .filter(leased)
            .fold((0, 0), |(all, over), m| (all + 1, over + usize::from(model.is_over(m))));
        prop_assert!((most - over..=most).contains(&ledger.leased()));
        prop_assert_eq!(ledger.unsettled(), model.unsettled.len());
        prop_assert_eq!(ledger.floor(), model.floor());
        prop_assert_eq!(ledger.next(), model.next);
        prop_assert_eq!(ledger.oldest(), model.unsettled.keys().next().copied());
        let times = model.unsettled.iter().filter_map(|(&sequence, message)| match message.state {
            // The ledger may have seen that it is over and must wait for others.
            _ if model.is_over(message) && model.is_blocked(sequence, message.key) => None,
            State::Leased { until } | State::Waiting { until } => Some(until),
            State::Held => None,
        });
        let live = model.unsettled.values().filter_map(|message| match message.state {
            State::Leased { until } if until > model.now => Some(ms(until)),
            _ => None,
        });
        // Where there is no room, what ends first makes some.
        if let Some(first) = live.min() {
            prop_assert!(ledger.next_due(0).is_some_and(|next| next <= first));
        }
        match (times.min(), ledger.next_due(MANY)) {
            (None, next) => prop_assert_eq!(next, None),
            // It may be asked to look early, never late.
            (Some(first), next) => {
                prop_assert!(next.is_some_and(|next| next <= ms(first.max(model.now))))
            }
        }
    }
    let position = ledger.changes();
    for sequence in start..model.next {
        let is_settled = !model.unsettled.contains_key(&sequence);
        let told = sequence < position.floor || position.settled.contains(sequence);
        prop_assert_eq!(told, is_settled, "{}", sequence);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_ledger_does_what_a_model_does(
        start in prop::sample::select(vec![0, 65_500]),
        steps in prop::collection::vec(step(), 0..150),
    ) {
        run(start, steps)?;
    }
}

#[test]
fn leases_that_are_given_expire_in_their_order_and_not_early() {
    let mut ledger = Ledger::new(0);
    for sequence in 0..100 {
        ledger.lease(sequence, 0, ms(sequence + VISIBILITY));
    }
    assert_eq!(ledger.next_due(MANY), Some(ms(VISIBILITY)));
    assert_eq!(ledger.due(ms(VISIBILITY - 1), ms(1000), MANY), None);
    for sequence in 0..100 {
        let now = ms(sequence + VISIBILITY);
        let grant = ledger.due(now, ms(1000), MANY).expect("one is due");
        assert_eq!(grant, Grant { sequence, generation: 2, attempt: 2 });
        assert_eq!(ledger.due(now, ms(1000), MANY), None, "each at its own time");
    }
}

#[test]
fn a_deadline_is_rounded_up_to_the_next_millisecond() {
    let mut ledger = Ledger::new(0);
    ledger.lease(0, 0, Duration::from_micros(10_001));
    assert_eq!(ledger.due(Duration::from_micros(10_999), ms(99), MANY), None);
    assert!(ledger.due(ms(11), ms(99), MANY).is_some());
}

#[test]
fn many_that_are_due_at_once_come_one_by_one_and_all() {
    const COUNT: u64 = 50_000;
    let mut ledger = Ledger::new(0);
    for sequence in 0..COUNT {
        let grant = ledger.lease(sequence, 0, ms(10)).expect("no key holds it");
        ledger.nack(sequence, grant.generation, ms(1), ms(60_000)).expect("it is leased");
    }
    assert_eq!(ledger.leased(), 0);
    let mut seen = BTreeSet::new();
    let mut calls = 0;
    while (seen.len() as u64) < COUNT {
        calls += 1;
        assert!(calls < 2 * COUNT, "only {} of {COUNT} come", seen.len());
        seen.extend(ledger.due(ms(60_000), ms(90_000), MANY).map(|grant| grant.sequence));
    }
    assert_eq!(ledger.due(ms(60_000), ms(90_000), MANY), None);
}
