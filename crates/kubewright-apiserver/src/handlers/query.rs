//! The query parameters of a request.

use kubewright_apimachinery::status::{Cause, Status};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::strconv;

/// The decoded parameters of a query string.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: Option<&str>) -> Self {
        let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(key, value)| (decode(key), decode(value)))
                .collect(),
        )
    }

    /// Returns the parameters that are the same as the options of a connection.
    pub(crate) fn of_options(options: &Value) -> Self {
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
            _ => None,
        };
        let fields = options.as_object().into_iter().flatten();
        let pairs =
            fields.filter(|(name, _)| !matches!(name.as_str(), "kind" | "apiVersion")).flat_map(|(name, value)| {
                let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                values.iter().filter_map(move |value| Some((name.clone(), text(value)?)))
            });
        Self(pairs.collect())
    }

    /// Returns all parameters, in the order sent.
    pub(crate) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// Returns all parameters, in the order sent.
    pub(crate) fn into_pairs(self) -> Vec<(String, String)> {
        self.0
    }

    /// Returns the first value of a parameter. An empty value counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Selects a watch, of all objects of the collection or of one.
    pub(crate) fn select_watch(&mut self, name: Option<&str>) {
        self.0.retain(|(key, _)| key != "watch" && (key != "fieldSelector" || name.is_none()));
        self.0.push(("watch".into(), "true".into()));
        if let Some(name) = name {
            self.0.push(("fieldSelector".into(), format!("metadata.name={name}")));
        }
    }

    /// Returns all values of a parameter that may be repeated, except empty ones.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        self.all(name).into_iter().filter(|value| !value.is_empty()).collect()
    }

    /// Returns all values of a parameter that may be repeated.
    fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }

    /// Returns a flag, or `None` if absent. As in Kubernetes, every value except `false` and `0` is true.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.has(name).then(|| !matches!(self.get(name), Some("false" | "0" | "False" | "FALSE" | "f" | "F")))
    }

    /// Returns a whole number, or `None` if absent.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Status> {
        let Some(text) = self.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| Status::bad_request(strconv::parse_int(text)))
    }
}

/// The treatment of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// The options common to all writes.
#[derive(Clone, Debug)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_validation: FieldValidation,
    /// Whether the client has set `fieldValidation`.
    pub(crate) sets_field_validation: bool,
    /// Returns the given field manager, if any.
    pub(crate) field_manager: Option<String>,
    pub(crate) force: Option<bool>,
    /// The kind of the options: `CreateOptions`, `UpdateOptions` or `PatchOptions`.
    pub(crate) kind: &'static str,
}

impl WriteOptions {
    /// Parses the options of this kind: `CreateOptions`, `UpdateOptions` or `PatchOptions`.
    pub(crate) fn parse(query: &Query, kind: &'static str) -> Result<Self, Status> {
        let mut causes = Vec::new();
        // An empty value isn't an absent one.
        let dry_run = dry_run(&query.all("dryRun"), &mut causes);
        let field_validation = match query.get("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                causes.push(Cause::not_supported("fieldValidation", &json!(other), &supported));
                FieldValidation::Warn
            }
        };
        let field_manager = query.get("fieldManager").map(str::to_owned);
        if let Some(manager) = &field_manager {
            if manager.len() > 128 {
                causes.push(Cause::new(
                    "FieldValueTooLong",
                    "fieldManager",
                    "Too long: may not be more than 128 bytes",
                ));
            }
            // As in Kubernetes, each is reported, by its place among the bytes.
            for (place, character) in manager.char_indices().filter(|(_, character)| character.is_control()) {
                let why = format!("invalid character U+{:04X} (at position {place})", u32::from(character));
                causes.push(Cause::invalid("fieldManager", &json!(manager), &why));
            }
        }
        if !causes.is_empty() {
            return Err(Status::invalid("meta.k8s.io", kind, "", causes));
        }
        let sets_field_validation = query.get("fieldValidation").is_some();
        let force = query.flag("force");
        Ok(Self { dry_run, field_validation, sets_field_validation, field_manager, force, kind })
    }

    /// Returns the options as an object, for webhooks. To them, a patch is an update.
    pub(crate) fn to_value(&self) -> Value {
        let kind = if self.kind == "PatchOptions" { "UpdateOptions" } else { self.kind };
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if let Some(manager) = &self.field_manager {
            options["fieldManager"] = manager.as_str().into();
        }
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        if self.sets_field_validation {
            options["fieldValidation"] = match self.field_validation {
                FieldValidation::Ignore => "Ignore",
                FieldValidation::Warn => "Warn",
                FieldValidation::Strict => "Strict",
            }
            .into();
        }
        options
    }
}

/// Parses `dryRun`, whose only value is `All`.
pub(crate) fn dry_run(values: &[&str], causes: &mut Vec<Cause>) -> bool {
    if values.iter().any(|value| *value != "All") {
        causes.push(Cause::not_supported("dryRun", &json!(values), &["All"]));
    }
    !values.is_empty()
}
