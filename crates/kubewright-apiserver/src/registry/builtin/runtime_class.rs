//! Runtime classes (<https://kubernetes.io/docs/concepts/containers/runtime-class/>).

use std::sync::Arc;

use kubewright_apimachinery::{name, status::Cause};
use serde_json::Value;

use super::{
    columns::{age, string},
    pod::{RuntimeClasses, deprecated_label, validate_limits, validate_tolerations},
    validation::{
        Errors, IMMUTABLE, Path, Shown, entries, field, items, string as text_field, validate_labels,
        validate_required_name,
    },
};
use crate::{
    fields::text,
    registry::{Column, Strategy},
};

/// The strategy of runtime classes.
#[derive(Debug)]
pub(super) struct RuntimeClassStrategy {
    /// The classes that pods are admitted by, which this strategy keeps up to date.
    pub(super) classes: Arc<RuntimeClasses>,
}

impl Strategy for RuntimeClassStrategy {
    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| {
            let handler = text_field(new, "handler");
            validate_required_name(handler, name::dns1123_label, &Path::new("handler"), errors);
            if let Some(overhead) = field(new, "overhead") {
                validate_limits(&overhead["podFixed"], &Path::new("overhead"), errors);
            }
            if let Some(scheduling) = field(new, "scheduling") {
                validate_scheduling(scheduling, &Path::new("scheduling"), errors);
            }
            if old.is_some_and(|old| text_field(old, "handler") != handler) {
                errors.invalid(&Path::new("handler"), handler, IMMUTABLE);
            }
        })
    }

    fn warnings(&self, _old: Option<&Value>, new: &Value) -> Vec<String> {
        let labels = entries(&new["scheduling"], "nodeSelector").map(|(key, _)| key);
        labels.filter_map(deprecated_label).map(|why| format!("scheduling.nodeSelector: {why}")).collect()
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        self.classes.replace(before, after);
    }
}

fn validate_scheduling(scheduling: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_labels(scheduling, "nodeSelector", &path.child("nodeSelector"), errors);
    let path = path.child("tolerations");
    let tolerations = items(scheduling, "tolerations");
    validate_tolerations(tolerations, &path, errors);
    let mut seen = Vec::new();
    for (index, toleration) in tolerations.iter().enumerate() {
        let key = ["key", "operator", "value", "effect"].map(|name| text_field(toleration, name));
        if seen.contains(&key) {
            let shown = ["Key", "Operator", "Value", "Effect"].into_iter().zip(key.map(Shown::from));
            let seconds = [("TolerationSeconds", Shown::nullable(toleration.get("tolerationSeconds")))];
            errors.duplicate(&path.index(index), Shown::object(shown.chain(seconds)));
        }
        seen.push(key);
    }
}

pub(super) fn columns() -> Vec<Column> {
    vec![string("Handler", |object, _| text(object, "/handler").into()), age()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn classes_are_checked() {
        let strategy = RuntimeClassStrategy { classes: Arc::default() };
        let toleration = json!({"key": "k", "operator": "Exists"});
        let class = json!({"handler": "A", "scheduling": {"tolerations": [toleration, toleration]}});
        let found = strategy.validate(Some(&json!({"handler": "b"})), &class);
        let fields: Vec<_> = found.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, ["handler", "scheduling.tolerations[1]", "handler"]);
    }
}
