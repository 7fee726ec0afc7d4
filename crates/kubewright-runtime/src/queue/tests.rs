//! The queue against a naive model, and its rules one by one.

use std::{collections::BTreeSet, time::Duration};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;

type Key = u8;

fn at(millis: u64) -> Now {
    let monotonic = Duration::from_millis(millis);
    let wall = Timestamp::UNIX_EPOCH + SignedDuration::try_from(monotonic).expect("in range");
    Now { monotonic, wall }
}

fn wall(millis: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_millis(millis)
}

fn queue() -> Queue<Key> {
    Queue::new(Backoff::default())
}

fn take(queue: &mut Queue<Key>, millis: u64) -> Option<Key> {
    queue.take(at(millis)).map(|taken| taken.key)
}

#[test]
fn a_key_added_while_worked_on_comes_back_after_it() {
    let mut queue = queue();
    assert!(queue.add(1, 0, When::Now, at(0)));
    assert!(!queue.add(1, 0, When::Now, at(0)), "it is wanted already");
    assert_eq!(take(&mut queue, 0), Some(1));
    assert!(queue.add(1, 0, When::Now, at(1)));
    assert_eq!(take(&mut queue, 1), None, "never two workers on a key");
    queue.done(&1);
    assert_eq!(take(&mut queue, 2), Some(1));
    queue.done(&1);
    assert_eq!(take(&mut queue, 3), None);
    assert!(queue.entries.is_empty(), "nothing is kept of a key that nobody wants");
}

#[test]
fn the_highest_priority_and_the_earliest_time_count() {
    let mut queue = queue();
    queue.add(1, LOW_PRIORITY, When::Now, at(0));
    queue.add(2, LOW_PRIORITY, When::Now, at(0));
    queue.add(3, 0, When::After(Duration::from_millis(50)), at(0));
    queue.add(3, 0, When::After(Duration::from_millis(20)), at(1));
    queue.add(3, 0, When::After(Duration::from_millis(90)), at(2));
    queue.add(2, 0, When::Now, at(3));
    assert_eq!(
        queue.depths().iter().map(|(priority, depth)| (*priority, *depth)).collect::<Vec<_>>(),
        [(-100, 1), (0, 1)]
    );
    assert_eq!(take(&mut queue, 4), Some(2));
    assert_eq!(queue.take(at(30)), Some(Taken { key: 3, priority: 0, waited: Duration::from_millis(9) }));
    assert_eq!(take(&mut queue, 30), Some(1));
    assert_eq!(queue.next_wake(at(30)), None, "a run makes earlier delays void");
}

#[test]
fn a_parked_key_keeps_its_place_and_takes_no_worker() {
    let mut queue = queue();
    for key in [1, 2, 3] {
        queue.add(key, 0, When::Now, at(0));
    }
    assert_eq!(take(&mut queue, 0), Some(1));
    queue.park(&1);
    assert_eq!(queue.working(), 0);
    assert_eq!(take(&mut queue, 1), Some(2));
    queue.add(1, 0, When::Now, at(2));
    queue.unpark(&1);
    queue.unpark(&1);
    assert_eq!(take(&mut queue, 3), Some(1), "before 3, which came after it");
    queue.done(&1);
    assert_eq!(take(&mut queue, 3), Some(3));
    assert_eq!(take(&mut queue, 3), None, "what came while it was parked is in the same run");
}

/// Row 19 of the faults: the wall clock is set while a key waits for it.
#[test]
fn row_19_a_wait_for_the_wall_clock_follows_it() {
    let mut queue = queue();
    let noon = wall(3_600_000);
    queue.add(1, 0, When::At(noon), at(0));
    queue.add(2, 0, When::At(Timestamp::MAX), at(0));
    assert_eq!(queue.next_wake(at(0)), Some(WALL_CLOCK_CHECK), "it may be set at any time");
    let back = Now { monotonic: Duration::from_secs(3600), wall: wall(0) };
    assert_eq!(queue.take(back), None);
    let forward = Now { monotonic: Duration::from_secs(3601), wall: noon };
    assert_eq!(queue.next_wake(forward), Some(Duration::ZERO));
    assert_eq!(queue.take(forward).map(|taken| taken.key), Some(1));
    queue.add(1, 0, When::At(wall(-1)), forward);
    queue.done(&1);
    assert_eq!(queue.take(forward).map(|taken| taken.key), Some(1), "a time in the past is now");
}

#[test]
fn failures_are_counted_by_key_until_it_succeeds() {
    let mut queue = queue();
    let delays = |queue: &mut Queue<Key>, key| queue.back_off(&key, 0.0).as_millis();
    assert_eq!((delays(&mut queue, 1), delays(&mut queue, 1), delays(&mut queue, 2)), (5, 10, 5));
    queue.forget(&1);
    assert_eq!((delays(&mut queue, 1), delays(&mut queue, 2)), (5, 10));
}

#[test]
fn a_closed_queue_lets_work_end_and_starts_none() {
    let mut queue = queue();
    for key in [1, 2] {
        queue.add(key, 0, When::Now, at(0));
    }
    queue.add(3, 0, When::After(Duration::from_millis(1)), at(0));
    assert_eq!(take(&mut queue, 0), Some(1));
    queue.add(1, 0, When::Now, at(0));
    queue.close();
    assert_eq!((queue.working(), take(&mut queue, 9)), (1, None));
    queue.done(&1);
    assert!(!queue.add(2, 0, When::Now, at(9)));
    assert_eq!((queue.working(), take(&mut queue, 9), queue.next_wake(at(9))), (0, None, None));
    assert!(queue.entries.is_empty());
}

#[test]
fn very_many_scheduled_keys_are_no_trouble() {
    let mut queue = Queue::new(Backoff::default());
    for key in 0..200_000_u32 {
        queue.add(key, 0, When::After(Duration::from_millis(u64::from(key % 1000) + 1)), at(0));
    }
    let mut taken = 0;
    for millis in 1..=1000 {
        while let Some(next) = queue.take(at(millis)) {
            queue.done(&next.key);
            taken += 1;
        }
    }
    assert_eq!(taken, 200_000);
}

/// What a caller may do.
#[derive(Clone, Debug)]
enum Step {
    Add(Key, i32, u64),
    AddAtWall(Key, i32, i64),
    Take,
    Done(usize),
    Park(usize),
    Unpark(Key),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let priority = prop::sample::select(vec![-100, 0, 7]);
    let step = prop_oneof![
        4 => (0..6_u8, priority.clone(), 0..30_u64).prop_map(|(key, priority, delay)| Step::Add(key, priority, delay)),
        1 => (0..6_u8, priority, 0..60_i64).prop_map(|(key, priority, time)| Step::AddAtWall(key, priority, time)),
        4 => Just(Step::Take),
        3 => any::<usize>().prop_map(Step::Done),
        1 => any::<usize>().prop_map(Step::Park),
        1 => (0..6_u8).prop_map(Step::Unpark),
        2 => (1..20_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 0..200)
}

/// The same rules, slowly: a list of wishes that is searched through each time.
#[derive(Default)]
struct Model {
    now: u64,
    wishes: Vec<Wish>,
    working: Vec<(Key, Wish)>,
    parked: BTreeSet<Key>,
    sequence: u64,
}

#[derive(Clone, Debug)]
struct Wish {
    key: Key,
    priority: i32,
    due: u64,
    /// By the wall clock: of those that end together, these come last.
    by_wall: bool,
    sequence: u64,
}

impl Model {
    fn add(&mut self, key: Key, priority: i32, due: u64, by_wall: bool) {
        self.sequence += 1;
        self.wishes.push(Wish { key, priority, due, by_wall, sequence: self.sequence });
        if due == 0 {
            return;
        }
        // Of the delays of a key the earliest counts, with the highest priority of all.
        let is_delay = |wish: &Wish| wish.key == key && wish.due != 0;
        let delays = || self.wishes.iter().filter(|wish| is_delay(wish));
        let priority = delays().map(|wish| wish.priority).max().expect("there is the new one");
        let place = |wish: &Wish| (wish.due, wish.sequence);
        let first = delays().filter(|wish| wish.by_wall == by_wall).map(place).min().expect("there is the new one");
        self.wishes.retain(|wish| !is_delay(wish) || wish.by_wall != by_wall || place(wish) == first);
        self.wishes.iter_mut().filter(|wish| is_delay(wish)).for_each(|wish| wish.priority = priority);
    }

    /// Wishes whose time has come are numbered in the order of that, if they were delayed.
    fn promote(&mut self) {
        let mut come: Vec<_> = self.wishes.iter_mut().filter(|wish| wish.due != 0 && wish.due <= self.now).collect();
        come.sort_by_key(|wish| (wish.by_wall, wish.due, wish.sequence));
        for wish in come {
            self.sequence += 1;
            (wish.sequence, wish.due) = (self.sequence, 0);
        }
    }

    fn take(&mut self) -> Option<(Key, i32)> {
        self.promote();
        let is_free = |key: &Key| !self.parked.contains(key) && self.working.iter().all(|(working, _)| working != key);
        let ready: BTreeSet<Key> =
            self.wishes.iter().filter(|wish| wish.due == 0).map(|wish| wish.key).filter(is_free).collect();
        let best =
            ready.into_iter().map(|key| self.merged(key)).min_by_key(|wish| (Reverse(wish.priority), wish.sequence))?;
        self.wishes.retain(|wish| wish.key != best.key);
        self.working.push((best.key, best.clone()));
        Some((best.key, best.priority))
    }

    fn merged(&self, key: Key) -> Wish {
        let mine = || self.wishes.iter().filter(|wish| wish.key == key && wish.due == 0);
        Wish {
            key,
            priority: mine().map(|wish| wish.priority).max().expect("it is wanted"),
            due: 0,
            by_wall: false,
            sequence: mine().map(|wish| wish.sequence).min().expect("it is wanted"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The queue hands out what the model does, in its order; so no key is lost, and none is handed out twice.
    #[test]
    fn behaves_as_its_model(steps in steps()) {
        let (mut queue, mut model) = (queue(), Model::default());
        for step in steps {
            let now = at(model.now);
            match step {
                Step::Add(key, priority, delay) => {
                    let when = if delay == 0 { When::Now } else { When::After(Duration::from_millis(delay)) };
                    queue.add(key, priority, when, now);
                    model.add(key, priority, if delay == 0 { 0 } else { model.now + delay }, false);
                }
                Step::AddAtWall(key, priority, time) => {
                    queue.add(key, priority, When::At(wall(time)), now);
                    let due = u64::try_from(time).unwrap_or_default();
                    model.add(key, priority, if due <= model.now { 0 } else { due }, true);
                }
                Step::Take => {
                    let taken = queue.take(now).map(|taken| (taken.key, taken.priority));
                    prop_assert_eq!(taken, model.take());
                }
                Step::Done(which) => {
                    if !model.working.is_empty() {
                        let (key, _) = model.working.remove(which % model.working.len());
                        queue.done(&key);
                    }
                }
                Step::Park(which) => {
                    if !model.working.is_empty() {
                        let (key, wish) = model.working.remove(which % model.working.len());
                        model.parked.insert(key);
                        model.wishes.push(wish);
                        queue.park(&key);
                    }
                }
                Step::Unpark(key) => {
                    model.parked.remove(&key);
                    queue.unpark(&key);
                }
                Step::Pass(millis) => model.now += millis,
            }
            prop_assert_eq!(queue.working(), model.working.len());
        }
    }
}
