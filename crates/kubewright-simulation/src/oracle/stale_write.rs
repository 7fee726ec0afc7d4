//! Writes that were decided from an older state than the operator's own last write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kubewright_apiserver::Change;
use kubewright_cluster::faults::ApiRequest;
use kubewright_runtime::trace::{Trace, Write};
use serde_json::Value;

use super::{Answer, Oracle, Seen};
use crate::world::text;

/// The most states of an object that are kept. A run that reads a state is over long before as many others have
/// followed.
const MOST: usize = 64;
/// The fields that the API server changes with each write.
const OF_SERVER: [&str; 3] = ["generation", "managedFields", "resourceVersion"];

/// A version of an object, and the object.
type State = (u64, Arc<Value>);

/// Finds writes for which a run had read an older state of the object than that of the last write of the same process,
/// if its answer was received:
///
/// * by an earlier run for the same object, whatever is written, since the runtime lets a run wait for the writes of
///   those before;
/// * by any other run, if the write changes a field that the other one had changed. It takes back what the run hadn't
///   seen. Merge patches and applies of different fields don't disturb each other, whatever their runs have read.
///
/// A write with the version that was read is refused by the API server, so it isn't looked at here. Neither is a
/// deletion by another run: which fields it was decided from can't be seen. Fields that are times don't count, since it
/// is the last one that is meant.
#[derive(Default)]
pub(super) struct StaleWrite {
    /// By kind, and namespace and name: the states of each object.
    states: BTreeMap<(String, String), Vec<State>>,
    /// The versions that the operator's writes made.
    made: BTreeSet<u64>,
    /// By process, kind, and namespace and name: the writes of each object.
    written: BTreeMap<(u64, String, String), Vec<Written>>,
}

/// A write that was answered.
#[derive(Clone)]
struct Written {
    verb: String,
    /// The controller, and the object for which it ran.
    key: (Arc<str>, String),
    run: String,
    read: Option<u64>,
    version: Option<u64>,
}

impl Written {
    fn of(trace: &Trace, write: &Write) -> Self {
        Self {
            verb: write.verb.to_string(),
            key: (trace.controller.clone(), trace.object.clone()),
            run: trace.id.clone(),
            read: write.read_version,
            version: write.version,
        }
    }

    /// Returns whether the write was decided without another one, which had made a version.
    fn is_before(&self, made: u64) -> bool {
        self.read.is_some_and(|read| read < made)
    }
}

impl StaleWrite {
    /// Returns what is wrong with two writes of one object, if the second was decided without the first.
    fn compare(&self, object: &(String, String), first: &Written, second: &Written) -> Option<String> {
        let made = first.version.filter(|made| self.made.contains(made) && second.is_before(*made))?;
        let fields = if first.key == second.key {
            String::new()
        } else {
            let version = second.version.filter(|version| *version > made && self.made.contains(version))?;
            let [one, other] = [made, version].map(|version| self.changed(object, version));
            let both = one.intersection(&other).next()?;
            format!(", and takes back {both}")
        };
        Some(format!(
            "{} {} {} for {} has read version {}, but {} for {} had written version {made}{fields}",
            second.verb, object.0, object.1, second.key.1, second.read?, first.verb, first.key.1
        ))
    }

    /// Returns the fields that a version has and the one before hasn't, or the other way round.
    fn changed(&self, object: &(String, String), version: u64) -> BTreeSet<String> {
        let mut fields = BTreeSet::new();
        let states = self.states.get(object).map(Vec::as_slice).unwrap_or_default();
        if let Some(at) = states.iter().position(|(other, _)| *other == version)
            && let Some(before) = at.checked_sub(1)
        {
            differ(&mut String::new(), &states[before].1, &states[at].1, &mut fields);
        }
        fields
    }
}

impl Oracle for StaleWrite {
    fn name(&self) -> &'static str {
        "stale-write"
    }

    fn change(&mut self, change: &Change, _: &Seen<'_>) -> Vec<String> {
        let key = (change.resource.kind.to_string(), place(change.object()));
        let states = self.states.entry(key).or_default();
        if states.len() == MOST {
            states.remove(0);
        }
        states.push((change.revision, change.object().clone()));
        Vec::new()
    }

    fn executed(&mut self, _: &ApiRequest, answer: Answer, _: &Seen<'_>) -> Vec<String> {
        self.made.extend(answer.version);
        Vec::new()
    }

    fn reconciled(&mut self, process: u64, trace: &Trace, _: &Seen<'_>) -> Vec<String> {
        let mut found = Vec::new();
        for write in trace.writes.iter().filter(|write| write.is_successful() && !write.dry_run) {
            if !matches!(&*write.verb, "update" | "patch" | "apply" | "delete") || write.object.is_empty() {
                continue;
            }
            let object = (write.kind.to_string(), write.object.clone());
            let place = (process, object.0.clone(), object.1.clone());
            let new = Written::of(trace, write);
            let others = self.written.get(&place).map(Vec::as_slice).unwrap_or_default();
            // Runs end in another order than they write.
            for other in others.iter().filter(|other| other.run != new.run) {
                found.extend(self.compare(&object, other, &new));
                if other.key != new.key {
                    found.extend(self.compare(&object, &new, other));
                }
            }
            let written = self.written.entry(place).or_default();
            if written.len() == MOST {
                written.remove(0);
            }
            written.push(new);
        }
        found
    }
}

/// Returns the namespace and name of an object, as traces have them.
fn place(object: &Value) -> String {
    match (text(object, "namespace"), text(object, "name")) {
        ("", name) => name.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// Adds the paths of the values that differ, other than times.
fn differ(path: &mut String, one: &Value, other: &Value, fields: &mut BTreeSet<String>) {
    if one == other {
        return;
    }
    let names = |value: &Value| value.as_object().map(|it| it.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    let names: BTreeSet<String> = names(one).into_iter().chain(names(other)).collect();
    let count = [one, other].iter().filter_map(|it| it.as_array()).map(Vec::len).max().unwrap_or_default();
    let is_metadata = path == ".metadata";
    let mut into = |step: String, one: &Value, other: &Value| {
        let length = path.len();
        path.push_str(&step);
        differ(path, one, other, fields);
        path.truncate(length);
    };
    let of_server = if is_metadata { OF_SERVER.as_slice() } else { &[] };
    for name in names.iter().filter(|name| !of_server.contains(&name.as_str())) {
        into(format!(".{name}"), &one[name.as_str()], &other[name.as_str()]);
    }
    for at in 0..count {
        into(format!("[{at}]"), &one[at], &other[at]);
    }
    let is_time = |value: &Value| value.as_str().is_some_and(|text| text.parse::<Timestamp>().is_ok());
    if names.is_empty() && count == 0 && !is_time(one) && !is_time(other) {
        fields.insert(path.trim_start_matches('.').to_owned());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(key: &str, run: &str, versions: (u64, u64)) -> Written {
        let key = ("club".into(), key.to_owned());
        Written { verb: "patch".into(), key, run: run.into(), read: Some(versions.0), version: Some(versions.1) }
    }

    /// An object whose versions 6 and 7 the operator has made.
    fn oracle(states: [Value; 3]) -> (StaleWrite, (String, String)) {
        let object = ("ConfigMap".to_owned(), "default/chess".to_owned());
        let states = (5..).zip(states.map(Arc::new)).collect();
        let oracle =
            StaleWrite { states: [(object.clone(), states)].into(), made: [6, 7].into(), ..StaleWrite::default() };
        (oracle, object)
    }

    #[test]
    fn a_field_that_another_run_has_written_is_taken_back() {
        let (oracle, object) = oracle(["", "ada", "bob"].map(|members| json!({"data": {"members": members}})));
        let first = written("default/ada", "1", (5, 6));
        let found = oracle.compare(&object, &first, &written("default/bob", "2", (5, 7)));
        let expected = "patch ConfigMap default/chess for default/bob has read version 5, but patch for default/ada had written version 6, \
                        and takes back data.members";
        assert_eq!(found.as_deref(), Some(expected));
        let fresh = written("default/bob", "2", (6, 7));
        assert_eq!(oracle.compare(&object, &first, &fresh), None, "it has seen the other write");
    }

    #[test]
    fn other_fields_and_times_are_not_taken_back() {
        let at = |hour: u32| format!("2020-01-30T{hour}:00:00Z");
        let (oracle, object) = oracle([
            json!({"data": {}, "seen": at(10)}),
            json!({"data": {"ada": "1"}, "seen": at(11)}),
            json!({"data": {"ada": "1", "bob": "1"}, "seen": at(12)}),
        ]);
        let (first, second) = (written("default/ada", "1", (5, 6)), written("default/bob", "2", (5, 7)));
        assert_eq!(oracle.compare(&object, &first, &second), None);
        // The same object's earlier run has to be seen, whatever is written.
        let again = written("default/ada", "3", (5, 7));
        assert!(oracle.compare(&object, &first, &again).is_some());
    }

    #[test]
    fn what_a_write_has_not_changed_does_not_count() {
        let (mut oracle, object) = oracle(["", "ada", "bob"].map(|members| json!({"data": {"members": members}})));
        oracle.made.remove(&7);
        let (first, second) = (written("default/ada", "1", (5, 6)), written("default/bob", "2", (5, 7)));
        assert_eq!(oracle.compare(&object, &first, &second), None);
    }
}
