//! The annotations about webhooks in the audit log
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#mutating-webhook-auditing-annotations>).

use kubewright_apimachinery::go_json;
use serde_json::Value;

use super::webhooks::Match;
use crate::audit::AuditContext;

/// The record of a webhook call.
#[derive(Clone, Copy)]
pub(super) struct WebhookAudit<'a> {
    audit: &'a AuditContext,
    one: &'a Match,
    round: usize,
}

impl<'a> WebhookAudit<'a> {
    /// Returns the record of a call in the first round (0) or the second one (1).
    pub(super) fn new(audit: &'a AuditContext, one: &'a Match, round: usize) -> Self {
        Self { audit, one, round }
    }

    /// Records that a mutating webhook was called, and whether it changed the object.
    pub(super) fn called(self, is_changed: bool) {
        let rest = format!(",\"mutated\":{is_changed}");
        self.audit
            .annotate(&self.key("mutation.webhook.admission.k8s.io", self.one.index), &self.value(rest.as_bytes()));
    }

    /// Records a patch, which contains parts of the object.
    pub(super) fn patched(self, patch: &Value) {
        if self.audit.records_requests() {
            let mut rest = b",\"patch\":".to_vec();
            go_json::write(patch, &mut rest);
            rest.extend_from_slice(b",\"patchType\":\"JSONPatch\"");
            self.audit.annotate(&self.key("patch.webhook.admission.k8s.io", self.one.index), &self.value(&rest));
        }
    }

    /// Records that the failure of a mutating webhook was ignored.
    pub(super) fn mutation_failed_open(self) {
        let key = self.key("failed-open.mutation.webhook.admission.k8s.io", self.one.index);
        self.audit.annotate(&key, &self.one.webhook.name);
    }

    /// Records that the failure of a validating webhook was ignored. `index` is its position among those that were
    /// called.
    pub(super) fn validation_failed_open(self, index: usize) {
        let key = self.key("failed-open.validating.webhook.admission.k8s.io", index);
        self.audit.annotate(&key, &self.one.webhook.name);
    }

    fn key(self, prefix: &str, index: usize) -> String {
        format!("{prefix}/round_{}_index_{index}", self.round)
    }

    /// Returns a JSON object with the names of the configuration and the webhook, and other fields.
    fn value(self, rest: &[u8]) -> String {
        let mut out = b"{\"configuration\":".to_vec();
        go_json::write_string(&self.one.configuration, &mut out);
        out.extend_from_slice(b",\"webhook\":");
        go_json::write_string(&self.one.webhook.name, &mut out);
        out.extend_from_slice(rest);
        out.push(b'}');
        String::from_utf8_lossy(&out).into_owned()
    }
}
