//! CustomResourceDefinitions (CRDs).
//!
//! A CRD is established by a second write, which the request that created it makes before it is answered. Then
//! [`entries`] creates a registry entry for each served version. All versions serve the same stored objects, which
//! [`crate::codec`] converts.

mod approval;
mod bundle;
mod entries;
mod status;
mod strategy;
#[cfg(test)]
mod tests;
mod validate;

use std::sync::Arc;

use kubewright_apimachinery::status::Cause;
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::status::Names;
use crate::{
    fields::{each, fill, list, present, set, text, within},
    registry::{CustomResources, Settled, Strategy},
};

/// The finalizer that keeps a CRD until a controller has deleted its objects.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The strategy of CRDs. It maintains the names of all CRDs and the registry entries of their resources.
#[derive(Debug, Default)]
pub(super) struct CrdStrategy {
    names: Mutex<Names>,
    custom: Arc<CustomResources>,
}

impl CrdStrategy {
    /// Creates a strategy that maintains the entries of these custom resources.
    pub(super) fn new(custom: Arc<CustomResources>) -> Self {
        Self { names: Mutex::default(), custom }
    }
}

impl Strategy for CrdStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            within(spec, "names", |names| {
                let kind = text(names, "/kind").to_owned();
                if !kind.is_empty() {
                    fill(names, "singular", kind.to_lowercase());
                    fill(names, "listKind", format!("{kind}List"));
                }
            });
            fill(spec, "conversion", json!({"strategy": "None"}));
            present(spec, "conversion", |conversion| {
                if let Some(service) = conversion.pointer_mut("/webhook/clientConfig/service") {
                    fill(service, "port", 443);
                }
            });
            for version in each(spec, "versions") {
                fill(version, "served", false);
                fill(version, "storage", false);
                present(version, "subresources", |subresources| {
                    present(subresources, "status", |status| *status = json!({}));
                });
            }
        });
        if list(object, "/status/storedVersions").is_empty()
            && let Some(name) = status::storage_version(object)
        {
            present(object, "status", |status| set(status, "storedVersions", json!([name])));
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        set(object, "status", json!({}));
        status::add_stored_version(object);
    }

    fn prepare_update(&self, _old: &Value, new: &mut Value) {
        status::add_stored_version(new);
    }

    fn settles(&self) -> bool {
        true
    }

    fn settled(&self, object: &Value) -> Option<Settled> {
        let mut settled = object.clone();
        status::settle(&mut settled, &self.names.lock());
        Some(Settled::Update(settled))
    }

    fn unsettled(&self) -> Vec<String> {
        self.names.lock().incomplete()
    }

    /// Adds the finalizer of the controller that deletes the objects of the kind.
    fn prepare_delete(&self, object: &mut Value) {
        within(object, "metadata", |metadata| {
            let mut finalizers = list(metadata, "/finalizers").to_vec();
            if !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
                finalizers.push(CLEANUP.into());
            }
            set(metadata, "finalizers", finalizers);
        });
        status::terminate(object);
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        validate::definition(old, new)
    }

    fn validate_status(&self, _old: &Value, new: &Value) -> Vec<Cause> {
        validate::status(new)
    }

    fn check_name(&self, definition: &Value, name: &str) -> Vec<String> {
        validate::name(definition, name).into_iter().collect()
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn warnings(&self, old: Option<&Value>, new: &Value) -> Vec<String> {
        validate::format_warnings(old, new)
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        self.names.lock().replace(before, after);
        let Some(definition) = after.or(before) else { return };
        let storage: Arc<str> = entries::storage(definition).into();
        let Some(after) = after.filter(|after| status::holds(after, "Established")) else {
            self.custom.replace(&storage, Vec::new());
            return;
        };
        if before.is_none_or(|before| served_part(before) != served_part(after)) {
            self.custom.replace(&storage, entries::entries(after));
        }
    }
}

/// Validates a new CRD as kube-apiserver does, without a server. Returns all errors; empty if the CRD is valid.
///
/// ```
/// let errors = kubewright_apiserver::registry::builtin::check_definition(&serde_json::json!({
///     "metadata": {"name": "cows.my.domain"},
///     "spec": {
///         "group": "my.domain", "scope": "Namespaced", "names": {"kind": "Cow", "plural": "cows"},
///         "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
///             "type": "object", "properties": {"spec": {"type": "string", "default": 7}},
///         }}}],
///     },
/// }));
/// assert_eq!(errors[0].field, "spec.validation.openAPIV3Schema.properties[spec].default");
/// ```
pub fn check_definition(definition: &Value) -> Vec<Cause> {
    let mut definition = definition.clone();
    let strategy: CrdStrategy = Default::default();
    strategy.default(&mut definition);
    strategy.prepare_create(&mut definition);
    let name = text(&definition, "/metadata/name");
    let wrong = strategy.check_name(&definition, name);
    let wrong = wrong.iter().map(|why| Cause::invalid("metadata.name", &name.into(), why));
    wrong.chain(strategy.validate(None, &definition)).collect()
}

/// Returns the parts of a CRD on which its entries depend.
fn served_part(definition: &Value) -> (&Value, &Value, bool, bool) {
    let holds = |condition| status::holds(definition, condition);
    (&definition["spec"], &definition["status"]["acceptedNames"], holds("Established"), holds("Terminating"))
}
