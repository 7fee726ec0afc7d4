//! Property tests of the queue against a naive model, and unit tests of its rules.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use kubewright_apimachinery::clock::SystemClock;
use proptest::prelude::*;

use super::*;
use crate::metrics::Metrics;

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

/// Returns whether the queue has no entries.
fn is_blank(queue: &Queue<Key>) -> bool {
    queue.entries.keys().is_empty() && queue.ready.is_empty() && queue.by_delay.is_empty() && queue.by_wall.is_empty()
}

fn take(queue: &mut Queue<Key>, millis: u64) -> Option<Key> {
    queue.take(at(millis)).map(|taken| taken.key)
}

#[test]
fn a_key_added_while_it_is_processed_runs_again() {
    let mut queue = queue();
    assert!(queue.add(1, 0, When::Now, at(0)));
    assert!(!queue.add(1, 0, When::Now, at(0)), "the key is already queued");
    assert_eq!(take(&mut queue, 0), Some(1));
    assert!(queue.add(1, 0, When::Now, at(1)));
    assert_eq!(take(&mut queue, 1), None, "never two workers on a key");
    queue.done(&1);
    assert_eq!(take(&mut queue, 2), Some(1));
    queue.done(&1);
    assert_eq!(take(&mut queue, 3), None);
    assert!(is_blank(&queue), "the queue keeps no state of a key that is neither queued nor failing");
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
    assert_eq!(queue.depths().collect::<Vec<_>>(), [(0, 1), (-100, 1)]);
    assert_eq!(take(&mut queue, 4), Some(2));
    assert_eq!(
        queue.take(at(30)),
        Some(Taken { key: 3, priority: 0, waited: Duration::from_millis(9), delayed: true, failures: 0 })
    );
    assert_eq!(take(&mut queue, 30), Some(1));
    assert_eq!(queue.next_wake(at(30)), None, "a run cancels earlier delays");
}

#[test]
fn a_parked_key_keeps_its_position_and_takes_no_worker() {
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
    assert_eq!(take(&mut queue, 3), Some(1), "before 3, which was added later");
    queue.done(&1);
    assert_eq!(take(&mut queue, 3), Some(3));
    assert_eq!(take(&mut queue, 3), None, "additions while it was parked belong to the same run");
}

#[test]
fn a_wait_for_the_wall_clock_follows_changes_of_the_clock() {
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
    assert_eq!(queue.take(forward).map(|taken| taken.key), Some(1), "a time in the past is due at once");
}

#[test]
fn failures_of_a_key_are_counted_until_it_succeeds() {
    let mut queue = queue();
    let delays = |queue: &mut Queue<Key>, key| queue.back_off(&key, 0.0).as_millis();
    assert_eq!((delays(&mut queue, 1), delays(&mut queue, 1), delays(&mut queue, 2)), (5, 10, 5));
    queue.forget(&1);
    assert_eq!((delays(&mut queue, 1), delays(&mut queue, 2)), (5, 10));
}

#[test]
fn a_closed_queue_lets_runs_end_and_starts_none() {
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
    assert!(is_blank(&queue));
}

#[test]
fn the_metrics_show_the_number_of_waiting_keys() {
    let metrics = Metrics::new(SystemClock::shared());
    let queue = SharedQueue::<Key>::new(SystemClock::shared(), metrics.queue("at"));
    let depth = |priority: i32| {
        let line = format!("workqueue_depth{{controller=\"at\",name=\"at\",priority=\"{priority}\"}} ");
        let text = metrics.encode().expect("text");
        text.lines().find_map(|found| found.strip_prefix(&line).map(str::to_owned))
    };
    assert_eq!((depth(0).as_deref(), depth(LOW_PRIORITY)), (Some("0"), None));
    for (key, priority) in [(1, 0), (2, LOW_PRIORITY), (3, LOW_PRIORITY)] {
        queue.add(key, priority, When::Now);
    }
    assert_eq!((depth(0).as_deref(), depth(LOW_PRIORITY).as_deref()), (Some("1"), Some("2")));
    queue.with(|queue, now| queue.take(now));
    assert_eq!((depth(0).as_deref(), depth(LOW_PRIORITY).as_deref()), (Some("0"), Some("2")));
    drop(queue);
    assert_eq!((depth(0).as_deref(), depth(LOW_PRIORITY).as_deref()), (Some("0"), Some("0")));
}

#[test]
fn two_hundred_thousand_scheduled_keys_are_returned() {
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

/// Other keys don't wait for a key that is added continuously, for one that is added again as soon as it is done, or
/// for one that always fails.
#[test]
fn no_key_starves_another() {
    const OTHERS: u8 = 50;
    let mut queue = queue();
    let (busy, eager, failing) = (100, 101, 102);
    for key in [busy, eager, failing].into_iter().chain(0..OTHERS) {
        queue.add(key, 0, When::Now, at(0));
    }
    let (mut others, mut runs) = (BTreeSet::new(), BTreeMap::<Key, usize>::new());
    for round in 0..100_000 {
        let now = at(round / 100);
        queue.add(busy, 0, When::Now, now);
        let Some(Taken { key, .. }) = queue.take(now) else { continue };
        *runs.entry(key).or_default() += 1;
        queue.add(busy, 0, When::Now, now);
        queue.done(&key);
        match key {
            key if key == eager => {
                queue.add(eager, 0, When::Now, now);
            }
            key if key == failing => {
                let delay = queue.back_off(&failing, 0.0);
                queue.add(failing, 0, When::After(delay), now);
            }
            key => {
                others.insert(key);
            }
        }
        if round == 3 + u64::from(OTHERS) {
            assert_eq!(others.len(), 1 + usize::from(OTHERS), "all other keys run in one round");
        }
    }
    // The delays of 5 ms, 10 ms and so on up to 320 ms together take less than the second that passes.
    assert_eq!(runs[&failing], 1 + 7);
    assert!(runs[&busy].abs_diff(runs[&eager]) <= 10, "{runs:?}");
}

/// The delay starts at 5 ms and doubles up to 1000 s.
#[test]
fn a_key_that_always_fails_is_retried_with_growing_delays() {
    let mut queue = queue();
    let (mut now, mut tries) = (0, Vec::new());
    queue.add(1, 0, When::Now, at(0));
    while now < 24 * 3_600_000 {
        let Some(key) = take(&mut queue, now) else {
            now += u64::try_from(queue.next_wake(at(now)).expect("the key is queued").as_millis()).expect("in range");
            continue;
        };
        tries.push(now);
        queue.done(&key);
        let delay = queue.back_off(&key, 0.0);
        queue.add(key, 0, When::After(delay), at(now));
    }
    let pauses: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses[..4], [5, 10, 20, 40]);
    assert!(pauses[18..].iter().all(|pause| *pause == 1_000_000), "{pauses:?}");
}

const DEBOUNCED: When =
    When::Debounced(Debounce { quiet: Duration::from_millis(10), longest: Duration::from_millis(35) });

#[test]
fn a_debounced_key_waits_for_a_pause_up_to_a_limit() {
    let mut queue = queue();
    for millis in [0, 8, 16] {
        assert!(!queue.add(1, LOW_PRIORITY, DEBOUNCED, at(millis)));
    }
    assert_eq!(queue.key_state(&1, at(16)), KeyState::Delayed(Duration::from_millis(10)));
    assert_eq!((take(&mut queue, 25), queue.next_wake(at(25))), (None, Some(Duration::from_millis(1))));
    let taken = queue.take(at(26)).expect("it has been quiet");
    assert_eq!((taken.key, taken.priority, taken.delayed), (1, LOW_PRIORITY, false), "it is no timer");
    queue.done(&1);
    assert!(is_blank(&queue));
    for millis in (100..135).step_by(5) {
        queue.add(1, NORMAL_PRIORITY, DEBOUNCED, at(millis));
    }
    assert_eq!((take(&mut queue, 134), take(&mut queue, 135)), (None, Some(1)), "it is never quiet");
    queue.add(1, 0, DEBOUNCED, at(140));
    queue.done(&1);
    assert_eq!((take(&mut queue, 149), take(&mut queue, 150)), (None, Some(1)), "additions while it runs");
    queue.done(&1);
    assert!(is_blank(&queue));
}

#[test]
fn a_debounced_key_runs_earlier_for_other_reasons() {
    let mut queue = queue();
    queue.add(1, 5, DEBOUNCED, at(0));
    queue.add(1, 0, When::After(Duration::from_millis(4)), at(0));
    assert_eq!(take(&mut queue, 4), Some(1), "the delay of a requeue is not extended");
    queue.done(&1);
    assert!(is_blank(&queue), "the run has included the addition");
    queue.add(1, 0, When::Now, at(20));
    queue.add(1, 5, DEBOUNCED, at(20));
    assert_eq!(queue.take(at(20)).map(|taken| taken.priority), Some(5), "a ready key isn't delayed");
    queue.done(&1);
    queue.add(1, 0, DEBOUNCED, at(30));
    queue.close();
    assert!(is_blank(&queue));
}

proptest! {
    /// A debounced key becomes ready when the additions pause for 10 ms, and at the latest 35 ms after the first.
    #[test]
    fn debounced_additions_are_one_run(pauses in proptest::collection::vec(0_u64..20, 1..40)) {
        let (mut queue, mut millis, mut burst) = (queue(), 0, None::<(u64, u64)>);
        let mut runs = Vec::new();
        let mut expected = Vec::new();
        for pause in pauses {
            for _ in 0..=pause {
                while let Some(key) = take(&mut queue, millis) {
                    runs.push(millis);
                    queue.done(&key);
                }
                if let Some((first, last)) = burst && millis == (last + 10).min(first + 35) {
                    expected.push(millis);
                    burst = None;
                }
                millis += 1;
            }
            // At the end of a millisecond, so that it doesn't coincide with a run.
            queue.add(1, 0, DEBOUNCED, at(millis - 1));
            burst = Some((burst.map_or(millis - 1, |(first, _)| first), millis - 1));
        }
        prop_assert_eq!(runs, expected);
    }
}

/// An operation on the queue, or a change of the clocks.
#[derive(Clone, Debug)]
enum Step {
    Add(Key, i32, Request),
    Take,
    Done(usize),
    Park(usize),
    Unpark(Key),
    BackOff(Key),
    Forget(Key),
    /// Monotonic time passes, and the wall clock advances with it.
    Pass(u64),
    /// Only the wall clock is changed.
    Jump(i64),
    Close,
}

#[derive(Clone, Copy, Debug)]
enum Request {
    Now,
    After(u64),
    At(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let request = prop_oneof![
        3 => Just(Request::Now),
        3 => (0..30_u64).prop_map(Request::After),
        2 => (-20..80_i64).prop_map(Request::At),
    ];
    let priority = prop::sample::select(vec![-100, 0, 7]);
    let step = prop_oneof![
        20 => (0..6_u8, priority, request).prop_map(|(key, priority, request)| Step::Add(key, priority, request)),
        16 => Just(Step::Take),
        12 => any::<usize>().prop_map(Step::Done),
        4 => any::<usize>().prop_map(Step::Park),
        4 => (0..6_u8).prop_map(Step::Unpark),
        2 => (0..6_u8).prop_map(Step::BackOff),
        2 => (0..6_u8).prop_map(Step::Forget),
        8 => (1..20_u64).prop_map(Step::Pass),
        3 => (-40..40_i64).prop_map(Step::Jump),
    ];
    let steps = prop::collection::vec(step.clone(), 0..200);
    // Some sequences close the queue and then continue for a while.
    (steps, any::<bool>(), prop::collection::vec(step, 0..20)).prop_map(|(mut steps, closes, rest)| {
        if closes {
            steps.push(Step::Close);
            steps.extend(rest);
        }
        steps
    })
}

/// A slow model of the same rules: a list of requests that is searched each time.
#[derive(Default)]
struct Model {
    now: u64,
    wall: i64,
    entries: Vec<Entry>,
    working: Vec<(Key, Entry)>,
    parked: BTreeSet<Key>,
    failures: BTreeMap<Key, u32>,
    sequence: u64,
    closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    priority: i32,
    request: Request,
    sequence: u64,
    /// The time at which it became ready.
    since: u64,
}

impl Entry {
    fn is_ready(&self) -> bool {
        matches!(self.request, Request::Now)
    }

    /// Returns the sort key of the due time: the earliest comes first, and among equal ones wall-clock times come last.
    fn end(&self) -> (bool, i64, u64) {
        match self.request {
            Request::Now => (false, 0, self.sequence),
            Request::After(due) => (false, due.cast_signed(), self.sequence),
            Request::At(time) => (true, time, self.sequence),
        }
    }
}

impl Model {
    fn now(&self) -> Now {
        Now { monotonic: Duration::from_millis(self.now), wall: wall(self.wall) }
    }

    fn add(&mut self, key: Key, priority: i32, request: Request) {
        if self.closed {
            return;
        }
        let request = match request {
            Request::After(delay) if delay > 0 => Request::After(self.now + delay),
            Request::At(time) if time > self.wall => Request::At(time),
            _ => Request::Now,
        };
        self.sequence += 1;
        let new = Entry { key, priority, request, sequence: self.sequence, since: self.now };
        self.entries.push(new);
        if new.is_ready() {
            return;
        }
        // Of a key's delays, the earliest of each kind (monotonic, wall clock) is kept, with the highest priority of
        // them all.
        let is_delay = |entry: &Entry| entry.key == key && !entry.is_ready();
        let is_like = |entry: &Entry| is_delay(entry) && entry.end().0 == new.end().0;
        let priority = self.entries.iter().filter(|entry| is_delay(entry)).map(|entry| entry.priority).max();
        let first = self.entries.iter().filter(|entry| is_like(entry)).map(Entry::end).min();
        self.entries.retain(|entry| !is_like(entry) || Some(entry.end()) == first);
        let delays = self.entries.iter_mut().filter(|entry| is_delay(entry));
        delays.for_each(|entry| entry.priority = priority.expect("the new entry"));
    }

    /// Numbers the requests that have become due in the order of their due times.
    fn promote(&mut self) {
        let has_come = |entry: &&mut Entry| match entry.request {
            Request::Now => false,
            Request::After(due) => due <= self.now,
            Request::At(time) => time <= self.wall,
        };
        let mut come: Vec<_> = self.entries.iter_mut().filter(has_come).collect();
        come.sort_by_key(|entry| entry.end());
        for entry in come {
            self.sequence += 1;
            entry.since = if let Request::After(due) = entry.request { due } else { self.now };
            (entry.sequence, entry.request) = (self.sequence, Request::Now);
        }
    }

    fn ready(&self) -> Vec<Entry> {
        let is_free = |key: &Key| !self.parked.contains(key) && self.working.iter().all(|(working, _)| working != key);
        let request: BTreeSet<_> =
            self.entries.iter().filter(|entry| entry.is_ready()).map(|entry| entry.key).collect();
        request.into_iter().filter(is_free).map(|key| self.merged(key)).collect()
    }

    fn take(&mut self) -> Option<(Key, i32, Duration)> {
        self.promote();
        let best = self.ready().into_iter().min_by_key(|entry| (Reverse(entry.priority), entry.sequence))?;
        self.entries.retain(|entry| entry.key != best.key);
        self.working.push((best.key, best));
        Some((best.key, best.priority, Duration::from_millis(self.now - best.since)))
    }

    fn merged(&self, key: Key) -> Entry {
        let mine = || self.entries.iter().filter(|entry| entry.key == key && entry.is_ready());
        Entry {
            key,
            priority: mine().map(|entry| entry.priority).max().expect("the key is queued"),
            request: Request::Now,
            sequence: mine().map(|entry| entry.sequence).min().expect("the key is queued"),
            since: mine().map(|entry| entry.since).min().expect("the key is queued"),
        }
    }

    fn depths(&self) -> BTreeMap<i32, usize> {
        let mut depths = BTreeMap::new();
        self.ready().iter().for_each(|entry| *depths.entry(entry.priority).or_default() += 1);
        depths
    }

    fn next_wake(&self) -> Option<Duration> {
        if !self.ready().is_empty() {
            return Some(Duration::ZERO);
        }
        let wakes = self.entries.iter().filter_map(|entry| match entry.request {
            Request::Now => None,
            Request::After(due) => Some(Duration::from_millis(due.saturating_sub(self.now))),
            Request::At(time) => {
                let left = u64::try_from(time - self.wall).unwrap_or_default();
                Some(Duration::from_millis(left).min(WALL_CLOCK_CHECK))
            }
        });
        wakes.min()
    }

    fn close(&mut self) {
        self.closed = true;
        self.entries.clear();
        self.parked.clear();
        self.failures.clear();
    }

    fn park(&mut self, which: usize) -> Key {
        let (key, entry) = self.working.remove(which);
        self.parked.insert(key);
        if !self.closed {
            self.entries.push(entry);
        }
        key
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1024, ..ProptestConfig::default() })]

    /// The queue returns the same keys as the model in the same order, and reports the same state; so no key is lost,
    /// and none is returned twice.
    #[test]
    fn the_queue_equals_its_model(steps in steps()) {
        let (mut queue, mut model) = (queue(), Model::default());
        for step in steps {
            let now = model.now();
            match step {
                Step::Add(key, priority, request) => {
                    let when = match request {
                        Request::Now => When::Now,
                        Request::After(delay) => When::After(Duration::from_millis(delay)),
                        Request::At(time) => When::At(wall(time)),
                    };
                    let waits = |model: &Model| model.entries.iter().any(|entry| entry.key == key && entry.is_ready());
                    let before = waits(&model);
                    model.add(key, priority, request);
                    prop_assert_eq!(queue.add(key, priority, when, now), waits(&model) && !before);
                }
                Step::Take => {
                    let taken = queue.take(now).map(|taken| (taken.key, taken.priority, taken.waited));
                    prop_assert_eq!(taken, model.take());
                }
                Step::Done(which) if !model.working.is_empty() => {
                    let (key, _) = model.working.remove(which % model.working.len());
                    queue.done(&key);
                }
                Step::Park(which) if !model.working.is_empty() => {
                    let key = model.park(which % model.working.len());
                    queue.park(&key);
                }
                Step::Done(_) | Step::Park(_) => {}
                Step::Unpark(key) => {
                    model.parked.remove(&key);
                    queue.unpark(&key);
                }
                Step::BackOff(key) => {
                    let failures = model.failures.entry(key).or_default();
                    prop_assert_eq!(queue.back_off(&key, 0.0), Backoff::default().delay(*failures, 0.0));
                    *failures += 1;
                }
                Step::Forget(key) => {
                    model.failures.remove(&key);
                    queue.forget(&key);
                }
                Step::Pass(millis) => {
                    model.now += millis;
                    model.wall += millis.cast_signed();
                }
                Step::Jump(millis) => model.wall += millis,
                Step::Close => {
                    model.close();
                    queue.close();
                }
            }
            let depths: BTreeMap<_, _> = queue.depths().collect();
            prop_assert_eq!(depths, model.depths());
            prop_assert_eq!(queue.next_wake(model.now()), model.next_wake());
            prop_assert_eq!(queue.working(), model.working.len());
        }
        // The queue keeps no state for keys that are neither requested, processed, parked nor failing.
        let known: BTreeSet<Key> = [
            model.entries.iter().map(|entry| entry.key).collect::<Vec<_>>(),
            model.working.iter().map(|(key, _)| *key).collect(),
            model.parked.iter().copied().collect(),
            model.failures.keys().copied().collect(),
        ].into_iter().flatten().collect();
        prop_assert_eq!(queue.entries.keys().into_iter().copied().collect::<BTreeSet<_>>(), known);
    }
}

#[test]
fn each_addition_of_a_key_that_was_not_waiting_is_counted_once() {
    let mut queue = Queue::new(Backoff::default());
    let at = |seconds| Now { monotonic: Duration::from_secs(seconds), wall: Timestamp::UNIX_EPOCH };
    for _ in 0..2 {
        queue.add("a", NORMAL_PRIORITY, When::Now, at(0));
    }
    queue.add("b", NORMAL_PRIORITY, When::After(Duration::from_secs(5)), at(0));
    assert_eq!(queue.added(), 1);
    while let Some(taken) = queue.take(at(9)) {
        queue.done(&taken.key);
    }
    assert_eq!(queue.added(), 2, "a delayed key counts when the delay is over");
}
