//! The annotations that preceded the fields for AppArmor. Those of a new pod are copied to the fields.

use serde_json::{Value, json};

use super::{super::validation::Errors, annotations, validate::validate_app_armor_profile};
use crate::{
    fields::{each, set, text, within},
    registry::builtin::validation::Path,
};

/// What a warning says about an annotation.
pub(super) const DEPRECATION: &str = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Copies the annotations of containers without a profile to their fields, unless the pod has the same profile.
pub(super) fn copy_annotations(pod: &mut Value) {
    let changes = changes(pod);
    within(pod, "spec", |spec| {
        for list in CONTAINERS {
            for container in each(spec, list) {
                let name = text(container, "/name").to_owned();
                let profile = changes.iter().find(|(_, of, _)| *of == name).and_then(|(_, _, profile)| profile.clone());
                if let Some(profile) = profile {
                    within(container, "securityContext", |context| set(context, "appArmorProfile", profile));
                }
            }
        }
    });
}

/// Returns the warnings about annotations of a new pod that are copied, or can't be.
pub(super) fn warnings(pod: &Value) -> Vec<String> {
    annotated(pod).iter().map(|key| format!("metadata.annotations[{key}]: {DEPRECATION}")).collect()
}

/// Returns the annotations of containers without a profile that name another one than that of their pod or template.
pub(super) fn annotated(pod: &Value) -> Vec<String> {
    changes(pod).into_iter().map(|(key, ..)| key).collect()
}

/// Returns the annotations to copy, with the names of their containers and the profiles. An annotation that isn't a
/// valid profile has none.
fn changes(pod: &Value) -> Vec<(String, String, Option<Value>)> {
    let spec = &pod["spec"];
    if text(spec, "/os/name") == "windows" {
        return Vec::new();
    }
    let of_pod = &spec["securityContext"]["appArmorProfile"];
    let containers = CONTAINERS.iter().flat_map(|list| spec[*list].as_array().into_iter().flatten());
    let change = |container: &Value| {
        let name = text(container, "/name");
        let key = format!("{}{name}", annotations::APP_ARMOR);
        let annotation = pod["metadata"]["annotations"][&key].as_str()?;
        if !container["securityContext"]["appArmorProfile"].is_null() {
            return None;
        }
        let profile = profile(annotation);
        (profile.as_ref() != Some(of_pod)).then(|| (key, name.to_owned(), profile))
    };
    containers.filter_map(change).collect()
}

/// Returns the profile that an annotation names, if it is valid.
fn profile(annotation: &str) -> Option<Value> {
    let profile = match annotation {
        "unconfined" => json!({"type": "Unconfined"}),
        "runtime/default" => json!({"type": "RuntimeDefault"}),
        other => json!({"type": "Localhost", "localhostProfile": other.strip_prefix("localhost/")?}),
    };
    let holder = json!({"appArmorProfile": profile});
    let causes = Errors::collect(|errors| {
        validate_app_armor_profile(&holder, &Path::new("appArmorProfile"), errors);
    });
    causes.is_empty().then_some(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_become_fields_and_are_warned_of() {
        let key = |name: &str| format!("{}{name}", annotations::APP_ARMOR);
        let mut pod = json!({
            "metadata": {"annotations": {
                key("a"): "runtime/default", key("b"): "localhost/p", key("c"): "nope", key("d"): "unconfined",
                key("e"): "runtime/default",
            }},
            "spec": {
                "securityContext": {"appArmorProfile": {"type": "Unconfined"}},
                "containers": [
                    {"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"},
                    {"name": "e", "securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
                ],
            },
        });
        assert_eq!(warnings(&pod).len(), 3);
        copy_annotations(&mut pod);
        let profile = |index: usize| pod["spec"]["containers"][index]["securityContext"]["appArmorProfile"].clone();
        assert_eq!(profile(0), json!({"type": "RuntimeDefault"}));
        assert_eq!(profile(1), json!({"type": "Localhost", "localhostProfile": "p"}));
        assert_eq!((profile(2), profile(3)), (Value::Null, Value::Null));
        assert_eq!(profile(4), json!({"type": "Unconfined"}));
    }
}
