//! Decides which events are written: repetitions become a series, and the rate of events about one object is limited.
//!
//! No I/O and no clock: time is passed in. The limits are those of client-go's two recorders.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};

use super::recorder::PendingEvent;

/// The time without a repetition after which a series ends.
const SERIES_QUIET: Duration = Duration::from_secs(6 * 60);
/// The time for which repetitions after the first are collected before they are written.
const SERIES_REFRESH: Duration = Duration::from_secs(5 * 60);
/// The most series that are tracked.
const MAX_SERIES: usize = 4096;
/// The maximum number of objects whose rate is tracked.
const MAX_BUCKETS: usize = 4096;
/// The burst of new events about one object.
const BURST: u32 = 25;
/// The time after which an object may have one more event.
const REFILL: Duration = Duration::from_secs(5 * 60);

const MAX_NOTE: usize = 1024;
const MAX_WORD: usize = 128;
const MAX_NAME: usize = 253;

/// The fields that the events of a series have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SeriesKey {
    controller: Arc<str>,
    regarding: Identity,
    related: Option<Identity>,
    type_: super::EventType,
    reason: String,
    action: String,
    note: String,
}

/// An object, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity([Option<String>; 6]);

impl From<ObjectReference> for Identity {
    fn from(it: ObjectReference) -> Self {
        Self([it.api_version, it.kind, it.namespace, it.name, it.uid, it.field_path])
    }
}

/// A write to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    /// A new event.
    Create(Box<Event>),
    /// An event repeated. It is passed whole, in case it was deleted and must be created again.
    Repeat(Box<Event>),
}

/// The decision about an event.
#[derive(Debug, PartialEq)]
pub(super) enum Decision {
    Write(Write),
    /// It is part of a series, and written with it later.
    Gathered,
    /// The object has too many events.
    Limited,
}

#[derive(Debug)]
struct Series {
    event: Event,
    seen: Duration,
    written: Duration,
    unwritten: bool,
}

/// The tokens of an object, and when they were counted.
#[derive(Debug)]
struct Bucket {
    tokens: u32,
    counted: Duration,
}

#[derive(Debug)]
pub(super) struct Correlator {
    instance: String,
    series: BTreeMap<SeriesKey, Series>,
    buckets: BTreeMap<(Arc<str>, Identity), Bucket>,
    last_name: i128,
}

impl Correlator {
    pub(super) fn new(instance: &str) -> Self {
        let instance = truncated(instance, MAX_WORD).to_owned();
        Self { instance, series: BTreeMap::new(), buckets: BTreeMap::new(), last_name: 0 }
    }

    /// Takes an event; `now` is monotonic.
    pub(super) fn observe(&mut self, pending: PendingEvent, now: Duration) -> Decision {
        let key = key_of(&pending);
        if let Some(series) = self.series.get_mut(&key)
            && now.saturating_sub(series.seen) < SERIES_QUIET
        {
            return series.repeat(pending.time, now);
        }
        if !self.take_token(&key, now) {
            return Decision::Limited;
        }
        let event = self.event_of(pending);
        self.make_room(now);
        let series = Series { event: event.clone(), seen: now, written: now, unwritten: false };
        self.series.insert(key, series);
        Decision::Write(Write::Create(Box::new(event)))
    }

    /// Drops ended series, and returns the repetitions that are due to be written.
    pub(super) fn refresh(&mut self, now: Duration) -> Vec<Write> {
        let mut writes = Vec::new();
        self.series.retain(|_, series| {
            let quiet = now.saturating_sub(series.seen) >= SERIES_QUIET;
            if quiet || now.saturating_sub(series.written) >= SERIES_REFRESH {
                writes.extend(series.flush(now));
            }
            !quiet
        });
        self.forget_full_buckets(now);
        writes
    }

    /// Returns all repetitions that have not been written, at the end.
    pub(super) fn flush(&mut self, now: Duration) -> Vec<Write> {
        self.series.values_mut().filter_map(|series| series.flush(now)).collect()
    }

    /// Returns whether there is nothing to [`refresh`](Self::refresh).
    pub(super) fn is_idle(&self) -> bool {
        self.series.is_empty() && self.buckets.is_empty()
    }

    /// Returns another name for an event whose name is taken.
    pub(super) fn rename(&mut self, event: &mut Event) {
        let object = event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref()).unwrap_or_default();
        let nanoseconds = event.event_time.as_ref().map_or(0, |time| time.0.as_nanosecond());
        event.metadata.name = Some(self.name_for(object, nanoseconds));
    }

    fn take_token(&mut self, key: &SeriesKey, now: Duration) -> bool {
        let object = (key.controller.clone(), key.regarding.clone());
        if self.buckets.len() >= MAX_BUCKETS && !self.buckets.contains_key(&object) {
            self.forget_buckets(now);
        }
        let bucket = self.buckets.entry(object).or_insert(Bucket { tokens: BURST, counted: now });
        bucket.refill(now);
        let taken = bucket.tokens > 0;
        bucket.tokens -= u32::from(taken);
        taken
    }

    fn forget_full_buckets(&mut self, now: Duration) {
        self.buckets.retain(|_, bucket| {
            bucket.refill(now);
            bucket.tokens < BURST
        });
    }

    /// Makes room for one object by dropping the one that has used the fewest tokens, which gains the least by it.
    fn forget_buckets(&mut self, now: Duration) {
        self.forget_full_buckets(now);
        let fullest = self.buckets.iter().max_by_key(|(_, bucket)| bucket.tokens).map(|(object, _)| object.clone());
        if let Some(fullest) = fullest.filter(|_| self.buckets.len() >= MAX_BUCKETS) {
            self.buckets.remove(&fullest);
        }
    }

    fn make_room(&mut self, now: Duration) {
        if self.series.len() < MAX_SERIES {
            return;
        }
        self.series.retain(|_, series| now.saturating_sub(series.seen) < SERIES_QUIET || series.unwritten);
        let oldest = self.series.iter().min_by_key(|(_, series)| series.seen).map(|(key, _)| key.clone());
        if let Some(oldest) = oldest.filter(|_| self.series.len() >= MAX_SERIES) {
            self.series.remove(&oldest);
        }
    }

    fn event_of(&mut self, PendingEvent { regarding, event, controller, time }: PendingEvent) -> Event {
        let namespace = regarding.namespace.clone().filter(|namespace| !namespace.is_empty());
        let name = self.name_for(regarding.name.as_deref().unwrap_or_default(), time.as_nanosecond());
        // The deprecated fields of core/v1 must stay unset in this version of the API; readers fall back on the new
        // ones.
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.unwrap_or_else(|| "default".into())),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(time)),
            reporting_controller: Some(controller.to_string()),
            reporting_instance: Some(self.instance.clone()),
            action: Some(truncated(&event.action, MAX_WORD).into()),
            reason: Some(truncated(&event.reason, MAX_WORD).into()),
            regarding: Some(regarding),
            related: event.related,
            note: Some(truncated(&event.note, MAX_NOTE).into()),
            type_: Some(event.type_.as_str().into()),
            ..Event::default()
        }
    }

    /// Returns `<object>.<time in hexadecimal>`, which is unique. kubectl shows events in the order of their names.
    fn name_for(&mut self, object: &str, nanoseconds: i128) -> String {
        self.last_name = nanoseconds.max(self.last_name + 1);
        let suffix = format!(".{:016x}", self.last_name);
        let object = truncated(object, MAX_NAME - suffix.len()).trim_end_matches(['.', '-']);
        format!("{object}{suffix}")
    }
}

impl Series {
    fn repeat(&mut self, time: Timestamp, now: Duration) -> Decision {
        let count = self.event.series.as_ref().map_or(2, |series| series.count.saturating_add(1));
        self.event.series = Some(EventSeries { count, last_observed_time: MicroTime(time) });
        self.seen = now;
        self.unwritten = true;
        if count > 2 && now.saturating_sub(self.written) < SERIES_REFRESH {
            return Decision::Gathered;
        }
        self.flush(now).map_or(Decision::Gathered, Decision::Write)
    }

    fn flush(&mut self, now: Duration) -> Option<Write> {
        self.unwritten.then(|| {
            self.unwritten = false;
            self.written = now;
            Write::Repeat(Box::new(self.event.clone()))
        })
    }
}

impl Bucket {
    fn refill(&mut self, now: Duration) {
        let periods = now.saturating_sub(self.counted).as_secs() / REFILL.as_secs();
        let periods = u32::try_from(periods).unwrap_or(BURST);
        self.tokens = self.tokens.saturating_add(periods).min(BURST);
        self.counted += REFILL * periods.min(BURST);
        if self.tokens == BURST {
            self.counted = now;
        }
    }
}

fn key_of(pending: &PendingEvent) -> SeriesKey {
    let PendingEvent { regarding, event, controller, .. } = pending;
    SeriesKey {
        controller: controller.clone(),
        regarding: regarding.clone().into(),
        related: event.related.clone().map(Into::into),
        type_: event.type_,
        reason: event.reason.clone(),
        action: event.action.clone(),
        note: truncated(&event.note, MAX_NOTE).into(),
    }
}

/// Cuts a text to at most `length` bytes, between characters.
fn truncated(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}

#[cfg(test)]
mod tests {
    use super::{super::Event as UserEvent, *};

    fn pending(object: usize, note: &str) -> PendingEvent {
        let regarding = ObjectReference { uid: Some(object.to_string()), ..ObjectReference::default() };
        PendingEvent {
            regarding,
            event: UserEvent::normal("Any", note),
            controller: "c".into(),
            time: Timestamp::UNIX_EPOCH,
        }
    }

    /// Memory is bounded, and the limit of each object holds, with any number of objects.
    #[test]
    fn the_rate_limits_of_many_objects_are_remembered() {
        let (mut correlator, now) = (Correlator::new("i"), Duration::from_secs(1000));
        for number in 0..BURST {
            let decision = correlator.observe(pending(0, &number.to_string()), now);
            assert!(matches!(decision, Decision::Write(_)));
        }
        for object in 1..MAX_BUCKETS + 200 {
            assert!(matches!(correlator.observe(pending(object, "one"), now), Decision::Write(_)));
            assert!(correlator.buckets.len() <= MAX_BUCKETS && correlator.series.len() <= MAX_SERIES);
        }
        assert_eq!(correlator.observe(pending(0, "one more"), now), Decision::Limited);
        correlator.refresh(now + REFILL * (BURST + 1));
        assert!(correlator.is_idle(), "all that is over is forgotten");
    }
}
