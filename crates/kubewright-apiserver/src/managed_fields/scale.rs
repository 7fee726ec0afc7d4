//! Owners of the number of replicas in a `Scale`.

use std::sync::LazyLock;

use kubewright_apimachinery::{
    apply::{self, Context, SCALE_VERSION, Writable},
    schema::{Node, Schema},
    status::Status,
};
use serde_json::Value;

use super::Manager;
use crate::{meta, registry::builtin::schemas};

/// The kind of a scale.
const KIND: &str = "Scale";

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| schemas::reference("io.k8s.api.autoscaling.v1.Scale"));

impl Manager<'_> {
    fn in_scale<T>(&self, run: impl FnOnce(&Context<'_>) -> T) -> T {
        run(&Context {
            node: Node::new(&SCHEMA, &schemas::definitions()),
            group_version: SCALE_VERSION,
            kind: KIND,
            manager: self.name,
            subresource: Some(self.subresource),
            force: self.force,
            // As in Kubernetes, the object itself doesn't record the time.
            now: Some(self.now),
            writable: Writable::All,
            blank: None,
            schema_changes: false,
            versions: None,
        })
    }

    /// Applies a configuration to a scale.
    pub(crate) fn apply_to_scale(&self, live: &Value, config: &Value) -> Result<Value, Status> {
        self.in_scale(|context| apply::apply(Some(live), config, context))
    }

    /// Like [`Self::apply_to_scale`], for the scale of a custom object, which Kubernetes can't convert from the result
    /// of an apply.
    pub(crate) fn apply_to_custom_scale(&self, live: &Value, config: &Value) -> Result<Value, Status> {
        let why = |place: &str| {
            let invalid = format!("request to convert CR to an invalid group/version: {SCALE_VERSION}");
            Err(Status::unknown(format!("{place}; {SCALE_VERSION}, Kind={KIND}) to proper version: {invalid}")))
        };
        let unowned = |scale: &Value| {
            let mut scale = scale.clone();
            meta::set(&mut scale, "managedFields", None);
            scale
        };
        if live["metadata"].get("managedFields").is_none() {
            return why("failed to create manager for existing fields: failed to convert live object (/");
        }
        let result = self.apply_to_scale(live, config)?;
        if unowned(&result) != unowned(live) {
            let [namespace, name] = ["namespace", "name"].map(|field| meta::text(config, field));
            return why(&format!("failed to convert new object ({namespace}/{name}"));
        }
        Ok(result)
    }

    /// Records the owners of the fields of a scale, which replaces `old`.
    pub(crate) fn track_scale(&self, old: &Value, scale: Value) -> Value {
        if self.applies { scale } else { self.in_scale(|context| apply::update(Some(old), scale, context)) }
    }
}
