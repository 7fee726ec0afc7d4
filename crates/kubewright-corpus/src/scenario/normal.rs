//! Removal of what differs between two servers, or two runs of one, from the answers of a scenario.
//!
//! UIDs are replaced by the names of their objects, and the versions of each object are numbered in the order of their
//! values, so that it remains visible which are equal and which are newer.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde_json::{Map, Value, json};

use super::Reply;
use crate::normalize::{SUFFIX, TIME, UID, normalize, token};

const MICRO_TIME: &str = "0000-00-00T00:00:00.000000Z";
/// The first port that is allocated to a Service.
const FIRST_NODE_PORT: u64 = 30_000;
/// The start of a message in which versions follow, as numbers.
const VERSIONS: &[&str] = &["resource version", "in record (", "in the precondition (", "resourceVersion"];

/// The start of the fingerprint of the recorder's certificate.
const FINGERPRINT: &str = "X509SHA256=";
/// The lists whose order is that of a Go map.
const UNORDERED: &[&str] = &["nonResourceRules", "resourceRules"];

#[derive(Default)]
pub(super) struct Normalizer {
    /// The names of objects by their UIDs.
    uids: BTreeMap<String, String>,
    /// The versions of each object, by its UID, or by its name if that isn't shown.
    versions: BTreeMap<String, BTreeSet<u64>>,
    /// The generated names, and what replaces them.
    names: BTreeMap<String, String>,
}

impl Normalizer {
    /// Normalizes the answers, and keeps the parts at the given pointers of each.
    pub(super) fn normalize(mut self, replies: Vec<(&[String], Reply)>) -> Vec<Reply> {
        for (_, reply) in &replies {
            self.collect(&reply.body);
        }
        let mut normalized = Vec::new();
        for (keep, mut reply) in replies {
            self.value("", &mut reply.body);
            reply.body = pick(reply.body, keep);
            for warning in &mut reply.warnings {
                *warning = self.text(warning);
            }
            normalized.push(reply);
        }
        normalized
    }

    /// Collects the versions of objects and the generated names.
    fn collect(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            Value::Object(fields) => {
                if let Some(metadata) = fields.get("metadata").and_then(Value::as_object) {
                    let text = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default();
                    if let Some(version) = text("resourceVersion").parse().ok().filter(|_| is_object(metadata)) {
                        self.versions.entry(identity(metadata)).or_default().insert(version);
                    }
                    if !text("uid").is_empty() {
                        self.uids.entry(text("uid").to_owned()).or_insert_with(|| text("name").to_owned());
                    }
                    let (name, prefix) = (text("name"), text("generateName"));
                    if !prefix.is_empty() && is_suffix(name.strip_prefix(prefix).unwrap_or_default()) {
                        self.names.insert(name.to_owned(), format!("{prefix}{{suffix}}"));
                    }
                }
                fields.values().for_each(|field| self.collect(field));
            }
            _ => {}
        }
    }

    fn value(&self, key: &str, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.field(key, text),
            Value::Number(number)
                if matches!(key, "nodePort" | "healthCheckNodePort") && number.as_u64() >= Some(FIRST_NODE_PORT) =>
            {
                *value = json!("{port}");
            }
            Value::Array(items) if key == "managedFields" => {
                let mut entries: Vec<_> = items.iter().map(summary).collect();
                // Their order depends on whether two writes were in the same second.
                entries.sort();
                *items = entries.into_iter().map(Value::from).collect();
            }
            Value::Array(items) => {
                items.retain(|item| !is_periodic_bookmark(item));
                if key == "causes" {
                    // Kubernetes validates the metadata up to four times, and lists its errors as often.
                    items.dedup();
                }
                let is_conflict = |cause: &Value| cause["reason"] == "FieldManagerConflict";
                if UNORDERED.contains(&key) || key == "causes" && items.iter().all(is_conflict) {
                    items.sort_by_cached_key(Value::to_string);
                }
                for item in items {
                    self.value(key, item);
                    // The texts are those of Kubernetes' documentation.
                    if key == "columnDefinitions" || key == "parameters" {
                        item.as_object_mut().map(|column| column.remove("description"));
                    }
                }
            }
            Value::Object(fields) => self.fields(key, fields),
            _ => {}
        }
    }

    fn fields(&self, key: &str, fields: &mut Map<String, Value>) {
        sort_custom_causes(fields);
        if fields.get("groupVersion").and_then(Value::as_str).is_some_and(|version| version.starts_with("{ns}")) {
            // A hash of the group, which contains the namespace.
            for resource in fields.get_mut("resources").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(hash) = resource.get_mut("storageVersionHash") {
                    *hash = "{hash}".into();
                }
            }
        }
        if key == "metadata" {
            let object = is_object(fields);
            let versions = self.versions.get(&identity(fields));
            if let Some(Value::String(version)) = fields.get_mut("resourceVersion") {
                if let Some(number) = version.parse::<u64>().ok().filter(|_| object) {
                    let count = versions.map_or(0, |versions| versions.range(..=number).count());
                    *version = format!("{{rv {count}}}");
                } else if version.parse::<u64>().is_ok_and(|number| number > 0) {
                    // That of a list or bookmark depends on the writes to other objects.
                    *version = "{rv}".into();
                }
            }
        }
        for (name, field) in fields {
            self.value(name, field);
        }
    }

    fn field(&self, key: &str, text: &str) -> String {
        match key {
            "continue" if !text.is_empty() => "{continue}".into(),
            "token" if text.starts_with("eyJ") => "{token}".into(),
            "clusterIP" | "clusterIPs" if text.parse::<IpAddr>().is_ok() => "{ip}".into(),
            "cells" if is_age(text) => "{age}".into(),
            "cells" if text.parse::<IpAddr>().is_ok() => "{ip}".into(),
            "message" => self.text(&hide_owners(&normalize(text))),
            _ if text.starts_with(FINGERPRINT) => format!("{FINGERPRINT}{{fingerprint}}"),
            _ => self.text(text),
        }
    }

    /// Replaces the random suffixes of generated names.
    fn generated(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (name, shown)| text.replace(name, shown))
    }

    fn text(&self, text: &str) -> String {
        let text = self.generated(text);
        let mut result = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(first) = rest.chars().next() {
            if token(rest, UID).is_some() {
                let name = self.uids.get(&rest[..UID.len()]).map(|name| format!(" {}", self.generated(name)));
                result += &format!("{{uid{}}}", name.unwrap_or_default());
                rest = &rest[UID.len()..];
            } else if token(rest, MICRO_TIME).is_some() {
                result += "{microtime}";
                rest = &rest[MICRO_TIME.len()..];
            } else if token(rest, TIME).is_some() {
                result += "{time}";
                rest = &rest[TIME.len()..];
            } else {
                result.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        hide_volume_suffix(&hide_versions(&result))
    }
}

/// Sorts the causes of an error about a custom object, and the same texts in its message. Kubernetes validates such an
/// object in the order of Go maps.
fn sort_custom_causes(status: &mut Map<String, Value>) {
    let details = status.get("details");
    let group = details.and_then(|details| details["group"].as_str()).unwrap_or_default();
    if !group.starts_with("{ns}") || status.get("reason").is_none_or(|reason| reason != "Invalid") {
        return;
    }
    let mut causes = details.and_then(|details| details["causes"].as_array()).cloned().unwrap_or_default();
    let list = |causes: &[Value]| -> String {
        let text = |cause: &Value, field: &str| cause[field].as_str().unwrap_or_default().to_owned();
        let lines: Vec<_> =
            causes.iter().map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect();
        format!("[{}]", lines.join(", "))
    };
    let before = list(&causes);
    causes.sort_by_cached_key(|cause| (cause["field"].to_string(), cause["message"].to_string()));
    if let Some(message) =
        status.get("message").and_then(Value::as_str).map(|text| text.replace(&before, &list(&causes)))
    {
        status.insert("message".into(), message.into());
    }
    if let Some(Value::Object(details)) = status.get_mut("details") {
        details.insert("causes".into(), causes.into());
    }
}

/// Tells an object's metadata from a list's.
fn is_object(metadata: &Map<String, Value>) -> bool {
    metadata.contains_key("uid") || metadata.contains_key("name")
}

/// Returns what identifies an object.
fn identity(metadata: &Map<String, Value>) -> String {
    let text = |field: &str| metadata.get(field).and_then(Value::as_str);
    text("uid").or_else(|| text("name")).unwrap_or_default().to_owned()
}

/// Whether an event is a bookmark that a server may send at any time.
fn is_periodic_bookmark(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event["object"]["metadata"].get("annotations").is_none()
}

fn is_suffix(text: &str) -> bool {
    text.len() == SUFFIX.0 && text.chars().all(|character| SUFFIX.1.contains(character))
}

/// Whether the cell of a table is an age, such as `5s`, `3m20s` or `328d`.
fn is_age(text: &str) -> bool {
    let mut parts = text.split_inclusive(|character: char| !character.is_ascii_digit());
    let is_part =
        |part: &str| part.strip_suffix(['y', 'd', 'h', 'm', 's']).is_some_and(|number| number.parse::<u32>().is_ok());
    !text.is_empty() && parts.all(is_part)
}

/// Replaces the numbers in a text about versions.
fn hide_versions(text: &str) -> String {
    let Some(start) = VERSIONS.iter().filter_map(|marker| text.find(marker)).min() else { return text.to_owned() };
    let mut result = text[..start].to_owned();
    let mut digits = false;
    for character in text[start..].chars() {
        if !character.is_ascii_digit() {
            result.push(character);
        } else if !digits {
            result += "{n}";
        }
        digits = character.is_ascii_digit();
    }
    result
}

/// Replaces the managed fields of an object in a message, whose order depends on whether two writes were in the same
/// second.
fn hide_owners(text: &str) -> String {
    const START: &str = "managedFields\\\":[";
    let Some((before, owners)) = text.split_once(START) else { return text.to_owned() };
    let mut depth = 1;
    let end = owners.find(|character| {
        depth += match character {
            '[' => 1,
            ']' => -1,
            _ => 0,
        };
        depth == 0
    });
    end.map_or_else(|| text.to_owned(), |end| format!("{before}{START}{{owners}}{}", &owners[end..]))
}

/// Replaces the random suffix of the volume with the token of a service account.
fn hide_volume_suffix(text: &str) -> String {
    const PREFIX: &str = "kube-api-access-";
    match text.strip_prefix(PREFIX) {
        Some(suffix) if is_suffix(suffix) => format!("{PREFIX}{{suffix}}"),
        _ => text.to_owned(),
    }
}

/// Returns an entry of the managed fields in a line, without its fields: other tests compare these.
fn summary(entry: &Value) -> String {
    let text = |name: &str| entry[name].as_str().unwrap_or("-");
    let line = ["manager", "operation", "apiVersion", "subresource"].map(text).join(" ");
    line.trim_end_matches(" -").to_owned()
}

/// Returns the parts of a body that JSON pointers select, by pointer; without pointers, the whole body.
fn pick(body: Value, keep: &[String]) -> Value {
    if keep.is_empty() {
        return body;
    }
    keep.iter().map(|pointer| (pointer.clone(), body.pointer(pointer).cloned().unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(bodies: &[Value]) -> Vec<Value> {
        let replies = bodies.iter().map(|body| (&[][..], Reply { body: body.clone(), ..Reply::default() }));
        Normalizer::default().normalize(replies.collect()).into_iter().map(|reply| reply.body).collect()
    }

    #[test]
    fn ages_of_tables_are_hidden() {
        let cells = |cells: Value| json!({"rows": [{"cells": cells}]});
        let expected = cells(json!(["{age}", "{age}", "{age}", "{age}", "2Gi", "d", "1", ""]));
        assert_eq!(normalized(&[cells(json!(["5s", "3m20s", "328d", "2y10d", "2Gi", "d", "1", ""]))]), [expected]);
    }

    #[test]
    fn versions_are_numbered_and_uids_named() {
        let object = |name: &str, uid: &str, version: &str| json!({"metadata": {"name": name, "uid": uid, "resourceVersion": version}});
        let [a, b] = ["12345678-1234-1234-1234-12345678901a", "12345678-1234-1234-1234-12345678901b"];
        let list = json!({"metadata": {"resourceVersion": "30"}, "items": [object("b", b, "20"), object("a", a, "9")]});
        let expected = [
            object("a", "{uid a}", "{rv 1}"),
            json!({
                "metadata": {"resourceVersion": "{rv}"},
                "items": [object("b", "{uid b}", "{rv 1}"), object("a", "{uid a}", "{rv 2}")],
            }),
        ];
        assert_eq!(normalized(&[object("a", a, "7"), list]), expected);
    }

    #[test]
    fn random_values_are_replaced() {
        let body = json!({
            "metadata": {"name": "a-5vxnl", "generateName": "a-", "creationTimestamp": "2026-01-02T03:04:05Z", "managedFields": [
                {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsV1": {}},
            ]},
            "spec": {"clusterIP": "10.0.0.1", "ip": "10.0.0.1", "renewTime": "2026-01-02T03:04:05.123456Z"},
            "message": "a-5vxnl: too old resource version: 1 (1422)",
            "columnDefinitions": [{"name": "Age", "description": "text"}],
            "rows": [{"cells": ["a-5vxnl", "12s"]}],
        });
        let expected = json!({
            "metadata": {"name": "a-{suffix}", "generateName": "a-", "creationTimestamp": "{time}", "managedFields": ["m Update v1"]},
            "spec": {"clusterIP": "{ip}", "ip": "10.0.0.1", "renewTime": "{microtime}"},
            "message": "a-{suffix}: too old resource version: {n} ({n})",
            "columnDefinitions": [{"name": "Age"}],
            "rows": [{"cells": ["a-{suffix}", "{age}"]}],
        });
        assert_eq!(normalized(&[body]), [expected]);
    }

    #[test]
    fn what_has_the_order_of_a_map_is_sorted() {
        let cause = |field: &str| json!({"field": field, "message": "Required value", "reason": "FieldValueRequired"});
        let status = |fields: [&str; 2], text: &str| {
            json!({
                "kind": "Status", "reason": "Invalid", "message": format!("T.{{ns}}.a \"b\" is invalid: [{text}]"),
                "details": {"group": "{ns}.a", "causes": fields.map(cause)},
            })
        };
        let one = status(["b", "a"], "b: Required value, a: Required value");
        let other = status(["a", "b"], "a: Required value, b: Required value");
        assert_eq!(normalized(&[one]), [other]);
        let conflict = |message: &str| json!({"reason": "FieldManagerConflict", "message": message});
        let conflicts = |messages: [&str; 2]| json!({"causes": messages.map(conflict)});
        assert_eq!(normalized(&[conflicts(["b", "a"])]), [conflicts(["a", "b"])]);
        let hashed = json!({"groupVersion": "{ns}.a/v1", "resources": [{"storageVersionHash": "x"}]});
        assert_eq!(normalized(&[hashed])[0]["resources"][0]["storageVersionHash"], "{hash}");
        assert_eq!(normalized(&[json!(["X509SHA256=abc"])]), [json!(["X509SHA256={fingerprint}"])]);
        let owned = |owners: &str| json!({"message": format!(r#""{{\"a\":1,\"managedFields\":[{owners}]}}""#)});
        assert_eq!(normalized(&[owned(r#"{\"f\":[]}"#)]), [owned("{owners}")]);
    }
}
