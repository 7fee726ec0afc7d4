//! The tests of the descriptors of fields.

use serde_json::Value;

use super::{TestResult, check::place};
use crate::olm::{items, text};

/// Returns the entry of the kind of an example, which the first one of that kind is, in whatever version.
fn owner<'a>(csv: &'a Value, index: usize, example: &Value, result: &mut TestResult) -> Option<&'a Value> {
    let owned = items(csv, "/spec/customresourcedefinitions/owned");
    let entry = owned.iter().find(|entry| entry.get("kind") == example.get("kind"));
    if entry.is_none() {
        result.fail(format!("{}: its kind is not among spec.customresourcedefinitions.owned", place(index, example)));
    }
    entry
}

fn loaded(csv: &Value, result: &mut TestResult) {
    result.report(format_args!("Loaded ClusterServiceVersion: {}", text(csv, "/metadata/name")));
}

/// Checks that each field of the specs has a descriptor.
pub(super) fn spec_descriptors(csv: &Value, examples: &[Value], result: &mut TestResult) {
    loaded(csv, result);
    for (index, example) in examples.iter().enumerate() {
        let Some(spec) = example["spec"].as_object() else {
            result.fail(format!("{}: spec: is missing", place(index, example)));
            continue;
        };
        let Some(entry) = owner(csv, index, example, result) else { continue };
        let descriptors = items(entry, "/specDescriptors");
        let has = |field: &str| descriptors.iter().any(|descriptor| text(descriptor, "/path") == field);
        let mut missing: Vec<_> = spec.keys().filter(|field| !has(field)).collect();
        missing.sort();
        for field in missing {
            result.fail(format!("{}: spec.{field} does not have a spec descriptor", text(example, "/kind")));
            result.suggest(format!(
                "Add a descriptor with the path {field} to the specDescriptors of {}",
                text(entry, "/name")
            ));
        }
    }
}

/// Checks that the kinds of examples with a status have descriptors of it.
pub(super) fn status_descriptors(csv: &Value, examples: &[Value], result: &mut TestResult) {
    loaded(csv, result);
    for (index, example) in examples.iter().enumerate() {
        let Some(entry) = owner(csv, index, example, result) else { continue };
        let name = text(entry, "/name");
        if example["status"].as_object().is_none_or(serde_json::Map::is_empty) {
            result.suggest(format!(
                "{}: has no status. Objects whose actual state may differ from the spec should have one: see \
                 https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#spec-and-status",
                place(index, example)
            ));
        } else if items(entry, "/statusDescriptors").is_empty() {
            result.fail(format!("{name} does not have a status descriptor"));
            result.suggest(format!("Add descriptors of the fields of the status to the statusDescriptors of {name}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::olm::scorecard::State;

    fn csv(owned: Value) -> Value {
        json!({"metadata": {"name": "cows.v1"}, "spec": {"customresourcedefinitions": {"owned": [owned]}}})
    }

    type Descriptors = fn(&Value, &[Value], &mut TestResult);

    fn run(check: Descriptors, owned: Value, example: Value) -> TestResult {
        let mut result = TestResult::passing("test");
        check(&csv(owned), &[example], &mut result);
        assert!(result.log.contains("Loaded ClusterServiceVersion: cows.v1"));
        result
    }

    #[test]
    fn fields_of_the_spec_need_descriptors() {
        let owned = json!({"kind": "Cow", "name": "cows.my.domain", "specDescriptors": [{"path": "size"}]});
        let example = |spec: Value| json!({"kind": "Cow", "metadata": {"name": "a"}, "spec": spec});
        let result = run(spec_descriptors, owned.clone(), example(json!({"size": 1})));
        assert_eq!((result.state, result.errors.len()), (State::Pass, 0));
        let result = run(spec_descriptors, owned.clone(), example(json!({"size": 1, "on": true, "age": 1})));
        assert_eq!(result.state, State::Fail);
        assert_eq!(
            result.errors,
            ["Cow: spec.age does not have a spec descriptor", "Cow: spec.on does not have a spec descriptor"]
        );
        assert_eq!(
            result.suggestions[0],
            "Add a descriptor with the path age to the specDescriptors of cows.my.domain"
        );
        let result = run(spec_descriptors, owned.clone(), json!({"kind": "Cow", "metadata": {"name": "a"}}));
        assert_eq!(result.errors, ["alm-examples[0] (Cow a): spec: is missing"]);
        let result = run(spec_descriptors, owned, json!({"kind": "Calf", "metadata": {"name": "b"}, "spec": {}}));
        assert_eq!(
            result.errors,
            ["alm-examples[0] (Calf b): its kind is not among spec.customresourcedefinitions.owned"]
        );
    }

    #[test]
    fn kinds_with_a_status_need_descriptors_of_it() {
        let owned = json!({"kind": "Cow", "name": "cows.my.domain"});
        let example = |status: Value| json!({"kind": "Cow", "metadata": {"name": "a"}, "spec": {}, "status": status});
        for status in [json!(null), json!({})] {
            let result = run(status_descriptors, owned.clone(), example(status));
            assert_eq!((result.state, result.errors.len(), result.suggestions.len()), (State::Pass, 0, 1));
        }
        let result = run(status_descriptors, owned.clone(), example(json!({"phase": "grown"})));
        assert_eq!(
            (result.state, result.errors.as_slice()),
            (State::Fail, &["cows.my.domain does not have a status descriptor".to_owned()][..])
        );
        let described = json!({"kind": "Cow", "name": "cows.my.domain", "statusDescriptors": [{"path": "phase"}]});
        let result = run(status_descriptors, described, example(json!({"phase": "grown"})));
        assert_eq!((result.state, result.suggestions.len()), (State::Pass, 0));
        let result = run(status_descriptors, owned, json!({"kind": "Calf", "metadata": {"name": "b"}}));
        assert_eq!(result.state, State::Fail);
    }
}
