//! The approval of the requests by which nodes get the certificates with which they are clients of the API server
//! (<https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/#approval>).
//!
//! A request is approved if its requester may create the subresource `nodeclient` of requests or, for a certificate of
//! the requester itself, `selfnodeclient`. Cluster roles of Kubernetes allow that, and nothing binds them at first.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kubewright_apiserver::Change;
use serde_json::{Value, json};

use super::{
    super::{
        reconcile::{Controller, Key, Plan, Step},
        value::{condition, list, stamp, text},
    },
    REQUEST, is_issued, requested,
    signer::{Signer, common_name},
    take,
};

/// All signing requests, by name.
#[derive(Debug, Default)]
pub(crate) struct Approvals(BTreeMap<String, Arc<Value>>);

impl Controller for Approvals {
    fn reset(&mut self) {
        self.0.clear();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        take(&mut self.0, change)
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(request) = self.0.get(&key.name) else { return Plan::default() };
        let mut plan = Plan::of(&REQUEST, request);
        let reviews = reviews(request, now);
        if !reviews.is_empty() {
            plan.steps.push(Step::MergeFirstAllowed(REQUEST.address("", &key.name), "/approval", reviews));
        }
        plan
    }
}

/// Returns the reviews of access of which one has to allow a request, each with the approval that follows. Empty for a
/// request that is decided, or that nodes don't make.
fn reviews(request: &Value, now: Timestamp) -> Vec<(Value, Value)> {
    let is_decided = ["Approved", "Denied"].iter().any(|kind| condition(request, kind).is_some());
    let signer = Signer::named(text(request, "/spec/signerName"));
    if is_decided || is_issued(request) || signer != Some(Signer::KubeletClient) {
        return Vec::new();
    }
    // The API server has checked it.
    let Some(requested) = requested(request) else { return Vec::new() };
    let usages: Vec<_> = list(request, "/spec/usages").iter().filter_map(Value::as_str).collect();
    if Signer::KubeletClient.check(&requested, &usages).is_err() {
        return Vec::new();
    }
    let mut reviews = Vec::new();
    if text(request, "/spec/username") == common_name(&requested) {
        let message = "Auto approving self kubelet client certificate after SubjectAccessReview.";
        reviews.push((review(request, "selfnodeclient"), approval(request, message, now)));
    }
    let message = "Auto approving kubelet client certificate after SubjectAccessReview.";
    reviews.push((review(request, "nodeclient"), approval(request, message, now)));
    reviews
}

/// Returns the review of whether the requester may create a subresource of requests.
fn review(request: &Value, subresource: &str) -> Value {
    let spec = &request["spec"];
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": spec["username"], "uid": spec["uid"], "groups": spec["groups"], "extra": spec["extra"],
            "resourceAttributes": {
                "group": REQUEST.group, "version": "*", "resource": REQUEST.plural, "subresource": subresource,
                "verb": "create",
            },
        },
    })
}

/// Returns the patch that approves a request, unless it has changed.
fn approval(request: &Value, message: &str, now: Timestamp) -> Value {
    let mut conditions = list(request, "/status/conditions").to_vec();
    conditions.push(json!({
        "type": "Approved", "status": "True", "reason": "AutoApproved", "message": message, "lastUpdateTime": stamp(now),
    }));
    let metadata = &request["metadata"];
    let known = json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]});
    json!({"metadata": known, "status": {"conditions": conditions}})
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            learn,
            tests::{NOW, at, content, request},
        },
        *,
    };

    /// Checks the subresources that are reviewed for a pending request with a change.
    #[track_caller]
    fn check(change: impl FnOnce(&mut Value), expect: &[&str]) {
        let usages = ["digital signature", "client auth"];
        let mut pending =
            request("kube-apiserver-client-kubelet", &usages, &content("system:nodes", "system:node:n", Vec::new()));
        pending["status"] = json!({});
        pending["spec"]["username"] = "system:node:n".into();
        change(&mut pending);
        let mut approvals = Approvals::default();
        let keys = learn(&mut approvals.0, &Arc::new(pending), false);
        let plan = approvals.decide(&keys[0], at(NOW));
        let reviews = match &plan.steps[..] {
            [] => &[][..],
            [Step::MergeFirstAllowed(address, "/approval", reviews)] if address.name == "r" => reviews,
            _ => panic!("{plan:?}"),
        };
        let subresource =
            |(review, _): &(Value, Value)| text(review, "/spec/resourceAttributes/subresource").to_owned();
        assert_eq!(reviews.iter().map(subresource).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn undecided_requests_of_nodes_are_reviewed() {
        check(|_| {}, &["selfnodeclient", "nodeclient"]);
        check(|request| request["spec"]["username"] = "system:bootstrap:x".into(), &["nodeclient"]);
        check(|request| request["spec"]["signerName"] = "kubernetes.io/kubelet-serving".into(), &[]);
        check(|request| request["spec"]["usages"] = json!(["server auth"]), &[]);
        check(|request| request["spec"]["request"] = content("dev", "system:node:n", Vec::new()).into(), &[]);
        for kind in ["Approved", "Denied"] {
            check(|request| request["status"] = json!({"conditions": [{"type": kind, "status": "True"}]}), &[]);
        }
        check(|request| request["status"] = json!({"certificate": "eA=="}), &[]);
    }

    #[test]
    fn the_review_is_about_the_requester() {
        let mut request = request("kube-apiserver-client-kubelet", &[], "");
        request["spec"]["username"] = "u".into();
        request["spec"]["groups"] = json!(["g"]);
        request["status"] = json!({"conditions": [{"type": "Failed"}]});
        let review = review(&request, "nodeclient");
        assert_eq!((&review["spec"]["user"], &review["spec"]["groups"]), (&json!("u"), &json!(["g"])));
        let patch = approval(&request, "why", at(NOW));
        assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
        let approved = json!({
            "type": "Approved", "status": "True", "reason": "AutoApproved", "message": "why", "lastUpdateTime": NOW,
        });
        assert_eq!(patch["status"], json!({"conditions": [{"type": "Failed"}, approved]}));
    }
}
