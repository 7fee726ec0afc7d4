//! The check of pods, and of objects with templates of pods, against the policy of their namespace.

use kubewright_apimachinery::status::Status;
use serde_json::Value;

use super::{call::Call, part::Part};
use crate::{
    admission::NAMESPACES,
    meta,
    plugins::AdmissionPlugin,
    registry::builtin::pod_security::{self, Exemption, Policy, Subject},
    storage::Key,
};

impl Call {
    /// Checks an object of this call, which is new or replaces `old`, as Kubernetes' admission plugin PodSecurity does.
    /// Both are in stored form. Returns warnings for the client.
    ///
    /// # Errors
    /// Returns 403 for a pod that violates the policy of its namespace, and 422 for a namespace whose labels name no
    /// policy.
    pub(super) fn check_pod_security(
        &self,
        part: Part,
        old: Option<&Value>,
        new: &Value,
    ) -> Result<Vec<String>, Status> {
        let resource = &*self.resource;
        let Some(subject) = Subject::of(&resource.group, &resource.plural) else { return Ok(Vec::new()) };
        let is_checked = match (subject, part, old) {
            (Subject::Pod, Part::Main | Part::Other(_), Some(old)) => pod_security::is_significant_update(old, new),
            // A scale changes no template.
            (Subject::Template(_), ..) if self.subresource.is_some() => false,
            (_, part, _) => part == Part::Main,
        };
        if !is_checked || !self.state.plugins.has(AdmissionPlugin::PodSecurity) {
            return Ok(Vec::new());
        }
        if subject == Subject::Namespace {
            return self.check_namespace_policy(old, new);
        }
        let config = &self.state.pod_security;
        if let Some(exemption) = config.exemption(&self.namespace, &self.user.name) {
            self.record_exemption(exemption);
            return Ok(Vec::new());
        }
        let namespace = self.state.store.get(NAMESPACES, &Key::new("", &self.namespace));
        let policy = namespace.map(|namespace| Policy::read(&namespace.value(), &config.defaults).0);
        let Some(policy) = policy else { return Ok(Vec::new()) };
        if !policy.is_privileged() && subject.template(new).is_some_and(|template| config.is_exempt_pod(template)) {
            self.record_exemption(Exemption::RuntimeClass);
            return Ok(Vec::new());
        }
        if self.audit.is_enabled() {
            self.record_pod_security(&policy, subject, new);
        }
        if policy.is_privileged() {
            return Ok(Vec::new());
        }
        let warning = match subject {
            Subject::Template(_) => {
                subject.template(new).and_then(|template| pod_security::evaluate_template(&policy, template))
            }
            _ => pod_security::evaluate_pod(&policy, new)
                .map_err(|why| Status::forbidden(&resource.group, &resource.plural, meta::text(new, "name"), &why))?,
        };
        Ok(warning.into_iter().collect())
    }

    /// Annotates the record of the audit log with what the policy enforces and what violates its level `audit`.
    fn record_pod_security(&self, policy: &Policy, subject: Subject, new: &Value) {
        let template = subject.template(new);
        if subject == Subject::Pod || policy.is_privileged() {
            self.audit.annotate("pod-security.kubernetes.io/enforce-policy", &policy.enforced());
        }
        if let Some(violations) = template.and_then(|template| pod_security::audit(policy, template)) {
            self.audit.annotate("pod-security.kubernetes.io/audit-violations", &violations);
        }
    }

    fn record_exemption(&self, exemption: Exemption) {
        self.audit.annotate("pod-security.kubernetes.io/exempt", exemption.as_str());
    }

    fn check_namespace_policy(&self, old: Option<&Value>, new: &Value) -> Result<Vec<String>, Status> {
        let name = meta::text(new, "name");
        let errors = pod_security::label_errors(old, new);
        if !errors.is_empty() {
            return Err(Status::invalid(&self.resource.group, &self.resource.kind, name, errors));
        }
        let config = &self.state.pod_security;
        let level = old.and_then(|old| pod_security::newly_enforced(old, new, &config.defaults));
        if config.is_exempt_namespace(name) {
            let is_concerned = old.is_none() || level.is_some();
            let warning = is_concerned.then(|| pod_security::ignored(new, &config.defaults)).flatten();
            return Ok(warning.into_iter().collect());
        }
        let Some(level) = level else { return Ok(Vec::new()) };
        let pods = self.state.store.of_namespace(pod_security::PODS, name);
        let pods = pods.into_iter().map(|(_, stored)| stored.value());
        let pods: Vec<_> = pods.filter(|pod| !config.is_exempt_pod(pod)).collect();
        Ok(pod_security::evaluate_existing(name, level, &pods))
    }
}
