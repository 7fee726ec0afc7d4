//! The correlation of events, as Kubernetes' recorders have it: a repetition is counted, many similar events become
//! one, and an object that causes too many events gets no more of them for a while. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;

use super::ObjectEvent;

/// The maximum number of occurrences, groups and objects that are remembered.
pub(super) const REMEMBERED: usize = 4096;
/// The number of different messages of a group from which on its events are combined.
const SIMILAR: usize = 10;
/// The time in seconds without events after which a group is empty again.
const GROUP_SECONDS: i64 = 600;
/// The beginning of the message of a combined event.
const COMBINED: &str = "(combined from similar events): ";
/// The number of events that an object can cause at once.
const BURST: f64 = 25.0;
/// The seconds until an object that has caused so many can cause another one.
const SECONDS_PER_EVENT: f64 = 300.0;

/// An event to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Correlated {
    /// What is counted: the occurrence, or the group of similar ones without its message.
    pub(super) counted: ObjectEvent,
    /// The message.
    pub(super) message: String,
    /// Whether it stands for similar events.
    pub(super) combined: bool,
    /// The number of occurrences so far.
    pub(super) count: u32,
    /// The name of the event that has been written for earlier ones.
    pub(super) name: Option<String>,
}

/// The memory of a recorder.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    groups: Memory<ObjectEvent, Group>,
    written: Memory<ObjectEvent, Written>,
    budgets: Memory<[String; 5], Budget>,
}

/// Events that differ only in their messages.
#[derive(Clone, Debug)]
struct Group {
    messages: BTreeSet<String>,
    last: Timestamp,
}

/// The event of an occurrence.
#[derive(Clone, Debug, Default)]
struct Written {
    name: Option<String>,
    count: u32,
}

/// What an object may still cause.
#[derive(Clone, Copy, Debug)]
struct Budget {
    events: f64,
    at: Timestamp,
}

impl Correlator {
    /// Returns what has to be written about an occurrence, if anything.
    pub(super) fn observe(&mut self, event: &ObjectEvent, now: Timestamp) -> Option<Correlated> {
        let combined = self.joins_group(event, now);
        let counted = if combined { group_of(event) } else { event.clone() };
        let message = if combined { format!("{COMBINED}{}", event.message) } else { event.message.clone() };
        let written = self.written.entry(&counted, Written::default);
        written.count = written.count.saturating_add(1);
        let (count, name) = (written.count, written.name.clone());
        let allowed = self.spend(&event.regarding, now);
        allowed.then_some(Correlated { counted, message, combined, count, name })
    }

    /// Notes the name of the event that was written.
    pub(super) fn created(&mut self, counted: &ObjectEvent, name: &str) {
        self.written.entry(counted, Written::default).name = Some(name.to_owned());
    }

    /// Returns whether an occurrence is one of many similar ones.
    fn joins_group(&mut self, event: &ObjectEvent, now: Timestamp) -> bool {
        let group = self.groups.entry(&group_of(event), || Group { messages: BTreeSet::new(), last: now });
        if now.duration_since(group.last).as_secs() > GROUP_SECONDS {
            group.messages.clear();
        }
        group.last = now;
        group.messages.insert(event.message.clone());
        if group.messages.len() < SIMILAR {
            return false;
        }
        group.messages.pop_first();
        true
    }

    /// Takes an event from the budget of an object. Returns false if the budget is used up.
    fn spend(&mut self, regarding: &[String; 5], now: Timestamp) -> bool {
        let budget = self.budgets.entry(regarding, || Budget { events: BURST, at: now });
        let passed = now.duration_since(budget.at).as_secs_f64().max(0.0);
        let events = (budget.events + passed / SECONDS_PER_EVENT).min(BURST);
        let allowed = events >= 1.0;
        *budget = Budget { events: if allowed { events - 1.0 } else { events }, at: now };
        allowed
    }
}

fn group_of(event: &ObjectEvent) -> ObjectEvent {
    ObjectEvent { message: String::new(), field_path: String::new(), ..event.clone() }
}

/// A map that forgets its oldest keys.
#[derive(Debug)]
struct Memory<K, V> {
    values: BTreeMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<K: Ord + Clone, V> Memory<K, V> {
    fn entry(&mut self, key: &K, initial: impl FnOnce() -> V) -> &mut V {
        if !self.values.contains_key(key) {
            self.order.push_back(key.clone());
            if self.order.len() > REMEMBERED
                && let Some(oldest) = self.order.pop_front()
            {
                self.values.remove(&oldest);
            }
        }
        self.values.entry(key.clone()).or_insert_with(initial)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn event(object: &str, message: &str) -> ObjectEvent {
        let regarding = ["v1".into(), "Pod".into(), "default".into(), object.into(), "u".into()];
        ObjectEvent::new(regarding, false, "Created", message.into())
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn repetitions_are_counted() {
        let mut correlator = Correlator::default();
        let first = correlator.observe(&event("a", "x"), at(0)).expect("an event");
        assert_eq!((first.count, first.name.clone(), first.combined), (1, None, false));
        correlator.created(&first.counted, "a.1");
        let second = correlator.observe(&event("a", "x"), at(1)).expect("an event");
        assert_eq!((second.count, second.name.as_deref()), (2, Some("a.1")));
        assert_eq!(correlator.observe(&event("a", "y"), at(1)).expect("an event").count, 1);
    }

    #[test]
    fn many_similar_events_become_one() {
        let mut correlator = Correlator::default();
        for number in 1..SIMILAR {
            let one = correlator.observe(&event("a", &format!("m{number}")), at(0)).expect("an event");
            assert_eq!((one.combined, one.count), (false, 1), "{number}");
        }
        for count in 1..3 {
            let one = correlator.observe(&event("a", &format!("more {count}")), at(1)).expect("an event");
            assert_eq!((one.combined, one.count), (true, count));
            assert_eq!(one.message, format!("(combined from similar events): more {count}"));
        }
        assert!(!correlator.observe(&event("b", "other"), at(1)).expect("an event").combined);
        assert!(!correlator.observe(&event("a", "later"), at(602)).expect("an event").combined);
    }

    #[test]
    fn an_object_causes_a_limited_number_of_events() {
        let mut correlator = Correlator::default();
        let written =
            |correlator: &mut Correlator, seconds| correlator.observe(&event("a", "x"), at(seconds)).is_some();
        assert_eq!((0..30).filter(|_| written(&mut correlator, 0)).count(), 25);
        assert!(!written(&mut correlator, 299));
        assert!(written(&mut correlator, 301));
        assert!(!written(&mut correlator, 302));
        let last = correlator.observe(&event("a", "x"), at(1000)).expect("an event");
        assert_eq!(last.count, 34, "those that aren't written count, too");
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut memory = Memory::default();
        for number in 0..=REMEMBERED {
            memory.entry(&number, || ());
        }
        assert_eq!((memory.values.len(), memory.values.contains_key(&0)), (REMEMBERED, false));
    }
}
