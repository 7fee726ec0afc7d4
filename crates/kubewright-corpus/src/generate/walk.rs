//! Cases that follow from the types of an object's fields.

use serde_json::{Value, json};

use crate::{
    change::Change,
    corpus::{Case, Verb},
    types::Types,
};

pub(crate) const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
pub(crate) const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

/// Returns the cases of the part of `object` at `root`, by the type of the object.
pub(super) fn walk(types: &Types, kind: &str, object: &Value, root: &str, skip: &[String]) -> Vec<Case> {
    let mut kind = kind.to_owned();
    for step in root.split('/').skip(1) {
        kind = child(types, &kind, step);
    }
    let mut walk = Walk { types, skip, cases: Vec::new() };
    if let Some(value) = object.pointer(root) {
        walk.fields(&kind, value, root);
    }
    walk.cases
}

/// Returns the type of a field or element.
pub(crate) fn child(types: &Types, kind: &str, step: &str) -> String {
    let kind = resolve(types, kind);
    if let Some(item) = kind.strip_prefix("[]") {
        return item.into();
    }
    if let Some((_, value)) = kind.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return value.into();
    }
    types.field(&kind, step).unwrap_or_default().to_owned()
}

/// Follows pointers and names to the type that they stand for, but keeps enumerations.
pub(crate) fn resolve(types: &Types, kind: &str) -> String {
    let mut kind = kind.trim_start_matches('*').to_owned();
    while let Some(named) = types.get(&kind) {
        match &named.of {
            Some(of) if named.values.is_empty() => kind = of.trim_start_matches('*').to_owned(),
            _ => break,
        }
    }
    kind
}

struct Walk<'a> {
    types: &'a Types,
    skip: &'a [String],
    cases: Vec<Case>,
}

impl Walk<'_> {
    fn fields(&mut self, kind: &str, value: &Value, at: &str) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    let path = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                    self.value(&child(self.types, kind, name), field, &path);
                }
            }
            Value::Array(items) => {
                // One element shows the rules of all.
                if let Some(first) = items.first() {
                    self.value(&child(self.types, kind, "0"), first, &format!("{at}/0"));
                }
            }
            _ => {}
        }
    }

    fn value(&mut self, declared: &str, value: &Value, at: &str) {
        if self.skip.iter().any(|skipped| skipped == at) {
            return;
        }
        self.remove(at);
        let pointer = declared.starts_with('*');
        let kind = resolve(self.types, declared);
        match kind.as_str() {
            "string" => {
                self.set(at, "empty", json!(""));
                self.set(at, "malformed", json!("Not_valid!"));
                if at.ends_with("/name") || at.ends_with("Name") {
                    self.set(at, "too long", json!("a".repeat(254)));
                }
            }
            "int32" | "int64" | "int" => {
                self.set(at, "negative", json!(-1));
                if value != 0 {
                    self.set(at, "zero", json!(0));
                }
                if at.ends_with("ort") {
                    self.set(at, "too large", json!(65536));
                }
            }
            INT_OR_STRING => {
                self.set(at, "negative", json!(-1));
                self.set(at, "zero", json!(0));
                self.set(at, "malformed", json!("Not_valid!"));
            }
            QUANTITY => {
                self.set(at, "negative", json!("-1"));
                self.set(at, "a fraction", json!("1m"));
            }
            "bool" | "" => {}
            named if self.types.get(named).is_some_and(|named| !named.values.is_empty()) => {
                self.set(at, "empty", json!(""));
                self.set(at, "unknown", json!("Unknown"));
            }
            list if list.starts_with("[]") => {
                self.set(at, "empty", json!([]));
                if let Some(first) = value.get(0) {
                    self.append(at, value, first);
                }
                self.fields(&kind, value, at);
            }
            map if map.starts_with("map[") => {
                self.set(at, "empty", json!({}));
                if let Some(first) = value.as_object().and_then(|map| map.values().next()) {
                    self.set(&format!("{at}/Not_valid!"), "malformed key", first.clone());
                }
                self.fields(&kind, value, at);
            }
            _ => {
                if pointer && value.as_object().is_some_and(|fields| !fields.is_empty()) {
                    self.set(at, "empty", json!({}));
                }
                self.fields(&kind, value, at);
            }
        }
    }

    fn remove(&mut self, at: &str) {
        self.add(format!("{}: missing", shown(at)), Change { remove: vec![at.into()], ..Change::default() });
    }

    fn set(&mut self, at: &str, what: &str, value: Value) {
        let change = Change { set: [(at.to_owned(), value)].into(), ..Change::default() };
        self.add(format!("{}: {what}", shown(at)), change);
    }

    fn append(&mut self, at: &str, list: &Value, item: &Value) {
        let end = list.as_array().map_or(0, Vec::len);
        let change = Change { set: [(format!("{at}/{end}"), item.clone())].into(), ..Change::default() };
        self.add(format!("{}: first element twice", shown(at)), change);
    }

    fn add(&mut self, case: String, change: Change) {
        self.cases.push(Case { case, verb: Verb::Create, change, answer: None });
    }
}

/// Returns a pointer as field paths are written.
fn shown(pointer: &str) -> String {
    let mut text = String::new();
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        if step.bytes().all(|byte| byte.is_ascii_digit()) || step.contains(['.', '/', '!']) {
            text += &format!("[{step}]");
        } else {
            text += &format!(".{step}");
        }
    }
    text.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_changed_by_its_type() {
        let text = "package p p
struct Kind
1 spec Spec
struct Spec
- . Inline
1 ports []*Port
struct Inline
\
                    1 policy *Policy
alias Policy string [\"A\"]
struct Port
1 port int32
";
        let types = Types::parse(text).unwrap();
        let object = json!({"spec": {"policy": "A", "ports": [{"port": 1}, {"port": 2}]}});
        let cases = walk(&types, "p.Kind", &object, "/spec", &[]);
        let names: Vec<_> = cases.iter().map(|case| case.case.as_str()).collect();
        let expected = [
            "spec.policy: missing",
            "spec.policy: empty",
            "spec.policy: unknown",
            "spec.ports: missing",
            "spec.ports: empty",
            "spec.ports: first element twice",
            "spec.ports[0]: missing",
            "spec.ports[0]: empty",
            "spec.ports[0].port: missing",
            "spec.ports[0].port: negative",
            "spec.ports[0].port: zero",
            "spec.ports[0].port: too large",
        ];
        assert_eq!(names, expected);
        assert_eq!(cases[5].change.apply(&object)["spec"]["ports"], json!([{"port": 1}, {"port": 2}, {"port": 1}]));
    }
}
