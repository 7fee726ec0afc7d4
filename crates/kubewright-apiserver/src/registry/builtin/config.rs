//! ConfigMaps and Secrets.

use std::collections::BTreeSet;

use base64::{Engine, prelude::BASE64_STANDARD};
use kubewright_apimachinery::{name, status::Cause};
use serde_json::{Value, json};

use super::{
    check::IMMUTABLE,
    columns::{age, count, integer, string},
};
use crate::{
    fields::{entries, fill, flag, remove, set, text, within},
    registry::{Column, Strategy},
};

/// The maximum size of all values together, in bytes.
const LIMIT: usize = 1024 * 1024;

/// The strategy of ConfigMaps.
#[derive(Debug)]
pub(super) struct ConfigMapStrategy;

impl Strategy for ConfigMapStrategy {
    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        let mut keys = BTreeSet::new();
        let mut size = 0;
        for field in ["data", "binaryData"] {
            for (key, value) in entries(new, &format!("/{field}")) {
                check_key(field, key, &mut causes);
                if !keys.insert(key) {
                    let why = "duplicate of key present in data";
                    causes.push(Cause::invalid(format!("{field}[{key}]"), &json!(key), why));
                }
                size += value_size(field == "binaryData", value);
            }
        }
        check_size("", size, &mut causes);
        if let Some(old) = old {
            check_frozen(old, new, &["data", "binaryData"], &mut causes);
        }
        causes
    }

    fn has_generation(&self) -> bool {
        false
    }
}

/// The strategy of Secrets.
#[derive(Debug)]
pub(super) struct SecretStrategy;

/// The required keys of Secrets by type.
const REQUIRED_KEYS: &[(&str, &[&str])] = &[
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
];

impl Strategy for SecretStrategy {
    fn default(&self, object: &mut Value) {
        fill(object, "type", "Opaque");
        let Some(Value::Object(plain)) = remove(object, "stringData") else { return };
        within(object, "data", |data| {
            for (key, value) in plain {
                // Values of other types are kept, and then fail schema validation.
                let encoded = value.as_str().map(|text| BASE64_STANDARD.encode(text).into());
                set(data, &key, encoded.unwrap_or(value));
            }
        });
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        let mut size = 0;
        for (key, value) in entries(new, "/data") {
            check_key("data", key, &mut causes);
            size += value_size(true, value);
        }
        check_size("data", size, &mut causes);
        let kind = text(new, "/type");
        for key in REQUIRED_KEYS.iter().filter(|(of, _)| *of == kind).flat_map(|(_, keys)| *keys) {
            if new["data"].get(key).is_none() {
                causes.push(Cause::required(format!("data[{key}]"), ""));
            }
        }
        if let Some(old) = old {
            if old["type"] != new["type"] {
                causes.push(Cause::invalid("type", &new["type"], IMMUTABLE));
            }
            check_frozen(old, new, &["data"], &mut causes);
        }
        causes
    }

    fn has_generation(&self) -> bool {
        false
    }
}

fn check_key(field: &str, key: &str, causes: &mut Vec<Cause>) {
    let sentences = name::config_key(key);
    causes.extend(sentences.iter().map(|why| Cause::invalid(format!("{field}[{key}]"), &json!(key), why)));
}

/// Returns the size of a value in bytes. For a base64 value this is approximately the decoded size.
fn value_size(encoded: bool, value: &Value) -> usize {
    let length = value.as_str().map_or(0, str::len);
    if encoded { length / 4 * 3 } else { length }
}

fn check_size(field: &str, size: usize, causes: &mut Vec<Cause>) {
    if size > LIMIT {
        let message = format!("Too long: may not be more than {LIMIT} bytes");
        // Kubernetes uses this name for the whole object.
        let field = if field.is_empty() { "[]" } else { field };
        causes.push(Cause::new("FieldValueTooLong", field, message));
    }
}

/// Checks that an immutable object remains immutable and keeps its data.
fn check_frozen(old: &Value, new: &Value, fields: &[&str], causes: &mut Vec<Cause>) {
    if !flag(old, "/immutable") {
        return;
    }
    let why = "field is immutable when `immutable` is set";
    if !flag(new, "/immutable") {
        causes.push(Cause::forbidden("immutable", why));
    }
    let changed = fields.iter().filter(|field| old[**field] != new[**field]);
    causes.extend(changed.map(|field| Cause::forbidden(*field, why)));
}

pub(super) fn config_map_columns() -> Vec<Column> {
    vec![integer("Data", |object, _| count(object, &["/data", "/binaryData"])), age()]
}

pub(super) fn secret_columns() -> Vec<Column> {
    vec![
        string("Type", |object, _| text(object, "/type").into()),
        integer("Data", |object, _| count(object, &["/data"])),
        age(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(strategy: &dyn Strategy, old: Option<Value>, new: Value, expect: &[&str]) {
        let found: Vec<_> = strategy.validate(old.as_ref(), &new).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expect.len(), "{found:?}");
        for (found, expect) in found.iter().zip(expect) {
            assert!(found.starts_with(expect), "{found:?} is not {expect:?}");
        }
    }

    #[test]
    fn string_data_of_secrets_is_encoded() {
        let mut secret = json!({"data": {"a": "eA=="}, "stringData": {"a": "y", "b": "z"}});
        SecretStrategy.default(&mut secret);
        assert_eq!(secret, json!({"type": "Opaque", "data": {"a": "eQ==", "b": "eg=="}}));
    }

    #[test]
    fn keys_sizes_and_types_are_checked() {
        let strategy = &ConfigMapStrategy;
        check(strategy, None, json!({"data": {"a b": ""}}), &["data[a b]: Invalid value: \"a b\": a valid config key"]);
        check(
            strategy,
            None,
            json!({"data": {"a": ""}, "binaryData": {"a": ""}}),
            &["binaryData[a]: Invalid value: \"a\": duplicate of key present in data"],
        );
        check(
            strategy,
            None,
            json!({"data": {"a": "x".repeat(LIMIT + 1)}}),
            &["[]: Too long: may not be more than 1048576"],
        );
        check(
            &SecretStrategy,
            None,
            json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}),
            &["data[tls.key]: Required value"],
        );
    }

    #[test]
    fn immutable_data_cannot_be_changed() {
        let old = json!({"immutable": true, "data": {"a": "1"}});
        check(&ConfigMapStrategy, Some(old.clone()), json!({"immutable": true, "data": {"a": "1"}}), &[]);
        let why = "Forbidden: field is immutable when `immutable` is set";
        check(
            &ConfigMapStrategy,
            Some(old),
            json!({"data": {"a": "2"}}),
            &[&format!("immutable: {why}"), &format!("data: {why}")],
        );
        let old = json!({"type": "Opaque"});
        check(&SecretStrategy, Some(old), json!({"type": "x"}), &["type: Invalid value: \"x\": field is immutable"]);
    }
}
