//! The last runs of each key, in bounded memory. A data structure: no I/O, no time.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use super::Trace;
use crate::object::ObjectKey;

/// What an entry of the ring takes beside the trace itself.
const OVERHEAD: usize = 160;

/// How much is kept, for each controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many runs of one key. 8 by default; 0 counts as 1.
    pub runs_per_key: usize,
    /// How many bytes of all keys together, about. 2 MiB by default, which holds the last two or three thousand runs; when
    /// it is full, the oldest run goes first, whosever it is.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { runs_per_key: 8, bytes: 2 << 20 }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Ring {
    limits: Limits,
    /// The runs of each key, oldest first. A key without runs isn't there.
    runs: HashMap<ObjectKey, VecDeque<Kept>>,
    /// Whose run came when.
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

    /// Keeps a run, and gives up what there is no room for.
    pub(super) fn push(&mut self, trace: Arc<Trace>) {
        let (key, size, number) = (trace.object.clone(), trace.size() + OVERHEAD, self.next);
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

    /// The runs of a key, oldest first.
    pub(super) fn of(&self, key: &ObjectKey) -> Vec<Arc<Trace>> {
        self.runs.get(key).into_iter().flatten().map(|kept| kept.trace.clone()).collect()
    }

    /// The last runs of all keys, at most so many, oldest first.
    pub(super) fn last(&self, most: usize) -> Vec<Arc<Trace>> {
        let newest = self.order.iter().rev().take(most).filter_map(|(number, key)| {
            let runs = self.runs.get(key)?;
            runs.iter().rev().find(|kept| kept.number == *number).map(|kept| kept.trace.clone())
        });
        let mut last = newest.collect::<Vec<_>>();
        last.reverse();
        last
    }

    /// How many runs are kept.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Of how many keys.
    pub(super) fn keys(&self) -> usize {
        self.runs.len()
    }

    /// About how many bytes they take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many runs were given up for others, not counting those displaced by later ones of their own key.
    pub(super) fn displaced(&self) -> u64 {
        self.displaced
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::samples;

    fn names(traces: &[Arc<Trace>]) -> Vec<String> {
        traces.iter().map(|trace| format!("{}:{}", trace.object, trace.id)).collect()
    }

    fn run(name: &str, id: &str) -> Arc<Trace> {
        Arc::new(Trace { object: ObjectKey::cluster(name), id: id.into(), ..samples::bare() })
    }

    #[test]
    fn a_key_keeps_its_last_runs() {
        let mut ring = Ring::new(Limits { runs_per_key: 2, ..Limits::default() });
        for (name, id) in [("a", "1"), ("b", "2"), ("a", "3"), ("a", "4")] {
            ring.push(run(name, id));
        }
        assert_eq!(names(&ring.of(&ObjectKey::cluster("a"))), ["a:3", "a:4"]);
        assert_eq!(names(&ring.last(10)), ["b:2", "a:3", "a:4"]);
        assert_eq!(names(&ring.last(2)), ["a:3", "a:4"]);
        assert!(ring.of(&ObjectKey::cluster("c")).is_empty());
        assert_eq!((ring.len(), ring.keys(), ring.displaced()), (3, 2, 0));
    }

    #[test]
    fn the_oldest_run_of_all_goes_first_and_its_key_with_it() {
        let size = run("a", "1").size() + OVERHEAD;
        let mut ring = Ring::new(Limits { bytes: 3 * size, ..Limits::default() });
        for (name, id) in [("a", "1"), ("b", "2"), ("b", "3"), ("b", "4"), ("c", "5")] {
            ring.push(run(name, id));
        }
        assert_eq!(names(&ring.last(10)), ["b:3", "b:4", "c:5"]);
        assert_eq!((ring.keys(), ring.bytes(), ring.displaced()), (2, 3 * size, 2));
    }

    #[test]
    fn a_run_that_is_too_big_leaves_nothing_behind() {
        let mut ring = Ring::new(Limits { bytes: 1, ..Limits::default() });
        ring.push(run("a", "1"));
        assert_eq!((ring.len(), ring.keys(), ring.bytes()), (0, 0, 0));
    }

    proptest! {
        /// Against the plainest model: a list of all runs, from which the excess is taken.
        #[test]
        fn it_is_as_a_plain_list(pushes in prop::collection::vec((0_u8..6, 0_usize..200), 0..80), bytes in 0_usize..6000) {
            let limits = Limits { runs_per_key: 3, bytes };
            let (mut ring, mut model) = (Ring::new(limits), Vec::<Arc<Trace>>::new());
            for (number, (key, length)) in pushes.into_iter().enumerate() {
                let trace = run(&key.to_string(), &format!("{number:0>length$}"));
                ring.push(trace.clone());
                model.push(trace);
                let own = |trace: &&Arc<Trace>| trace.object == ObjectKey::cluster(&key.to_string());
                if model.iter().filter(own).count() > 3 {
                    let first = model.iter().position(|trace| own(&trace)).expect("there are four");
                    model.remove(first);
                }
                let size = |model: &[Arc<Trace>]| model.iter().map(|trace| trace.size() + OVERHEAD).sum::<usize>();
                while size(&model) > bytes {
                    model.remove(0);
                }
                prop_assert_eq!(names(&ring.last(usize::MAX)), names(&model));
                prop_assert_eq!((ring.len(), ring.bytes()), (model.len(), size(&model)));
                let keys = model.iter().map(|trace| trace.object.clone()).collect::<std::collections::BTreeSet<_>>();
                prop_assert_eq!(ring.keys(), keys.len());
                for key in keys {
                    let own = model.iter().filter(|trace| trace.object == key).cloned().collect::<Vec<_>>();
                    prop_assert_eq!(names(&ring.of(&key)), names(&own));
                }
            }
        }
    }
}
