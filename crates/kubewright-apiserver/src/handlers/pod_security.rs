//! The check of pods, and of objects with templates of pods, against the policy of their namespace.

use kubewright_apimachinery::status::Status;
use serde_json::Value;

use super::{call::Call, part::Part};
use crate::{
    admission::NAMESPACES,
    meta,
    registry::builtin::pod_security::{self, Policy},
    storage::Key,
};

impl Call {
    /// Checks an object of this call, which is new or replaces `old`, as Kubernetes' admission plugin PodSecurity does. Both are in
    /// stored form. Returns warnings for the client.
    ///
    /// # Errors
    /// Returns 403 for a pod that violates the policy of its namespace, and 422 for a namespace whose labels name no policy.
    pub(super) fn check_pod_security(
        &self,
        part: Part,
        old: Option<&Value>,
        new: &Value,
    ) -> Result<Vec<String>, Status> {
        let resource = &*self.resource;
        if &*resource.storage == NAMESPACES {
            return if part == Part::Main { self.check_namespace_policy(old, new) } else { Ok(Vec::new()) };
        }
        let Some(pointer) = pod_security::pod_pointer(&resource.group, &resource.plural) else { return Ok(Vec::new()) };
        let is_checked = match (part, old) {
            (Part::Main, _) if !pointer.is_empty() => true,
            (Part::Main, None) => true,
            (Part::Main | Part::Other(_), Some(old)) if pointer.is_empty() => {
                pod_security::is_significant_update(old, new)
            }
            _ => false,
        };
        let namespace = self.state.store.get(NAMESPACES, &Key::new("", &self.namespace)).filter(|_| is_checked);
        let Some(namespace) = namespace else { return Ok(Vec::new()) };
        let (policy, _) = Policy::read(&namespace.value());
        if policy.is_privileged() {
            return Ok(Vec::new());
        }
        if !pointer.is_empty() {
            let template = new.pointer(pointer);
            return Ok(template
                .and_then(|template| pod_security::evaluate_template(&policy, template))
                .into_iter()
                .collect());
        }
        match pod_security::evaluate_pod(&policy, new) {
            Ok(warning) => Ok(warning.into_iter().collect()),
            Err(why) => Err(Status::forbidden("", "pods", meta::text(new, "name"), &why)),
        }
    }

    fn check_namespace_policy(&self, old: Option<&Value>, new: &Value) -> Result<Vec<String>, Status> {
        let name = meta::text(new, "name");
        let errors = pod_security::label_errors(old, new);
        if !errors.is_empty() {
            return Err(Status::invalid("", "Namespace", name, errors));
        }
        let Some(level) = old.and_then(|old| pod_security::newly_enforced(old, new)) else { return Ok(Vec::new()) };
        let pods: Vec<_> =
            self.state.store.of_namespace("/pods", name).into_iter().map(|(_, stored)| stored.value()).collect();
        Ok(pod_security::evaluate_existing(name, level, &pods))
    }
}
