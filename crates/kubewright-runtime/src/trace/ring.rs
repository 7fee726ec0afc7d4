//! The last traces of each key in bounded memory: a data structure without I/O or clocks.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use super::{End, Query, Read, RecordedEvent, Trace, Trigger, Write};
use crate::object::ObjectKey;

/// The memory overhead of an entry, in bytes.
const OVERHEAD: usize = 160;

/// The limits of the traces of each controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of traces per key. Default: 8; 0 counts as 1.
    pub runs_per_key: usize,
    /// The approximate memory of all traces of a controller, in bytes. Default: 2 MiB, enough for the last two or three
    /// thousand runs. When it is full, the oldest trace of any key is dropped.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { runs_per_key: 8, bytes: 2 << 20 }
    }
}

/// The traces of one controller.
#[derive(Debug)]
pub(super) struct Ring {
    limits: Limits,
    /// The traces of each key, oldest first. A key without traces has no entry.
    runs: HashMap<ObjectKey, VecDeque<Kept>>,
    /// The keys of all traces, in order of their numbers.
    order: BTreeMap<u64, ObjectKey>,
    next: u64,
    bytes: usize,
    displaced: u64,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    size: usize,
    trace: Arc<Trace>,
}

impl Ring {
    pub(super) fn new(limits: Limits) -> Self {
        let limits = Limits { runs_per_key: limits.runs_per_key.max(1), ..limits };
        Self { limits, runs: HashMap::new(), order: BTreeMap::new(), next: 0, bytes: 0, displaced: 0 }
    }

    /// Adds a trace of a key, and drops old traces that exceed the limits.
    pub(super) fn push(&mut self, key: ObjectKey, trace: Arc<Trace>) {
        let (size, number) = (size(&trace) + OVERHEAD, self.next);
        self.next += 1;
        let runs = self.runs.entry(key.clone()).or_default();
        runs.push_back(Kept { number, size, trace });
        self.order.insert(number, key);
        self.bytes += size;
        if runs.len() > self.limits.runs_per_key
            && let Some(old) = runs.pop_front()
        {
            self.order.remove(&old.number);
            self.bytes -= old.size;
        }
        while self.bytes > self.limits.bytes && self.drop_oldest() {
            self.displaced += 1;
        }
    }

    fn drop_oldest(&mut self) -> bool {
        let Some((_, key)) = self.order.pop_first() else { return false };
        let Some(runs) = self.runs.get_mut(&key) else { return true };
        if let Some(old) = runs.pop_front() {
            self.bytes -= old.size;
        }
        if runs.is_empty() {
            self.runs.remove(&key);
        }
        true
    }

    /// Returns the traces of a key, oldest first.
    pub(super) fn of(&self, key: &ObjectKey) -> Vec<Arc<Trace>> {
        self.runs.get(key).into_iter().flatten().map(|kept| kept.trace.clone()).collect()
    }

    /// Returns the last traces of all keys, at most `most`, oldest first.
    pub(super) fn last(&self, most: usize) -> Vec<Arc<Trace>> {
        let newest = self.order.iter().rev().take(most).filter_map(|(number, key)| {
            let runs = self.runs.get(key)?;
            runs.iter().rev().find(|kept| kept.number == *number).map(|kept| kept.trace.clone())
        });
        let mut last = newest.collect::<Vec<_>>();
        last.reverse();
        last
    }

    /// Returns the number of traces.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the number of keys that have traces.
    pub(super) fn keys(&self) -> usize {
        self.runs.len()
    }

    /// Returns the approximate memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of traces dropped because the memory was full, not counting those replaced by later ones of
    /// their key.
    pub(super) fn displaced(&self) -> u64 {
        self.displaced
    }
}

/// Returns the approximate memory of a trace in bytes.
fn size(trace: &Trace) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let triggers = trace.triggers.iter().map(|trigger| {
        let fields = trigger.fields.iter().map(|field| field.len() + size_of::<String>()).sum::<usize>();
        size_of::<Trigger>() + text(&trigger.object) + fields
    });
    let reads = trace.reads.iter().map(|read| {
        let query = match &read.query {
            Query::Name { object } => object.len(),
            Query::Labels { namespace, selector } => text(namespace) + selector.len(),
            Query::Index { index, value } => index.len() + value.len(),
            _ => 0,
        };
        size_of::<Read>() + query + text(&read.error)
    });
    let writes = trace
        .writes
        .iter()
        .map(|write| size_of::<Write>() + write.object.len() + text(&write.subresource) + text(&write.error));
    let events = trace.events.iter().map(|event| size_of::<RecordedEvent>() + event.reason.len());
    let end = match &trace.end {
        End::Failed { error, .. } | End::Panicked { error } => error.len(),
        _ => 0,
    };
    let parts = triggers.chain(reads).chain(writes).chain(events).sum::<usize>();
    size_of::<Trace>() + trace.object.len() + trace.id.len() + end + parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(traces: &[Arc<Trace>]) -> Vec<String> {
        traces.iter().map(|trace| format!("{}:{}", trace.object, trace.id)).collect()
    }

    fn run(name: &str, id: &str) -> Arc<Trace> {
        let mut trace = Trace::default();
        (trace.object, trace.id) = (name.into(), id.into());
        Arc::new(trace)
    }

    fn push(ring: &mut Ring, trace: Arc<Trace>) {
        ring.push(ObjectKey::cluster(&trace.object), trace);
    }

    #[test]
    fn a_key_keeps_its_last_traces() {
        let mut ring = Ring::new(Limits { runs_per_key: 2, ..Limits::default() });
        for (name, id) in [("a", "1"), ("b", "2"), ("a", "3"), ("a", "4")] {
            push(&mut ring, run(name, id));
        }
        assert_eq!(names(&ring.of(&ObjectKey::cluster("a"))), ["a:3", "a:4"]);
        assert_eq!(names(&ring.last(10)), ["b:2", "a:3", "a:4"]);
        assert_eq!(names(&ring.last(2)), ["a:3", "a:4"]);
        assert!(ring.of(&ObjectKey::cluster("c")).is_empty());
        assert_eq!((ring.len(), ring.keys(), ring.displaced()), (3, 2, 0));
    }

    #[test]
    fn the_oldest_trace_is_dropped_first_and_its_key_with_it() {
        let size = size(&run("a", "1")) + OVERHEAD;
        let mut ring = Ring::new(Limits { bytes: 3 * size, ..Limits::default() });
        for (name, id) in [("a", "1"), ("b", "2"), ("b", "3"), ("b", "4"), ("c", "5")] {
            push(&mut ring, run(name, id));
        }
        assert_eq!(names(&ring.last(10)), ["b:3", "b:4", "c:5"]);
        assert_eq!((ring.keys(), ring.bytes(), ring.displaced()), (2, 3 * size, 2));
    }

    #[test]
    fn a_trace_that_is_too_big_is_not_kept() {
        let mut ring = Ring::new(Limits { bytes: 1, ..Limits::default() });
        push(&mut ring, run("a", "1"));
        assert_eq!((ring.len(), ring.keys(), ring.bytes()), (0, 0, 0));
    }

    proptest! {
        /// Compares the ring with a simple model: a list of all traces, from which the excess is removed.
        #[test]
        fn it_behaves_like_a_plain_list(pushes in prop::collection::vec((0_u8..6, 0_usize..200), 0..80), bytes in 0_usize..6000) {
            let limits = Limits { runs_per_key: 3, bytes };
            let (mut ring, mut model) = (Ring::new(limits), Vec::<Arc<Trace>>::new());
            for (number, (key, length)) in pushes.into_iter().enumerate() {
                let trace = run(&key.to_string(), &format!("{number:0>length$}"));
                push(&mut ring, trace.clone());
                model.push(trace);
                let own = |trace: &&Arc<Trace>| trace.object == key.to_string();
                if model.iter().filter(own).count() > 3 {
                    let first = model.iter().position(|trace| own(&trace)).expect("there are four");
                    model.remove(first);
                }
                let size = |model: &[Arc<Trace>]| model.iter().map(|trace| size(trace) + OVERHEAD).sum::<usize>();
                while size(&model) > bytes {
                    model.remove(0);
                }
                prop_assert_eq!(names(&ring.last(usize::MAX)), names(&model));
                prop_assert_eq!((ring.len(), ring.bytes()), (model.len(), size(&model)));
                let keys = model.iter().map(|trace| trace.object.clone()).collect::<std::collections::BTreeSet<_>>();
                prop_assert_eq!(ring.keys(), keys.len());
                for key in keys {
                    let own = model.iter().filter(|trace| trace.object == key).cloned().collect::<Vec<_>>();
                    prop_assert_eq!(names(&ring.of(&ObjectKey::cluster(&key))), names(&own));
                }
            }
        }
    }
}
