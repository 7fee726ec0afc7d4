//! Pod disruption budgets: which of them protect a pod, and whether they allow its eviction
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/>). Pure.

use std::sync::Arc;

use jiff::Timestamp;
use kubewright_apimachinery::{
    selector::LabelSelector,
    status::{Cause, Status},
};
use serde_json::{Value, json};

use crate::{
    fields::{entries, int, list, set, text, within},
    meta,
    registry::{Registry, Resource},
};

/// The maximum number of evictions that the disruption controller hasn't confirmed yet.
const MAX_DISRUPTED_PODS: usize = 2000;
/// The condition of a budget that says whether it allows disruptions.
const ALLOWED: &str = "DisruptionAllowed";

/// Returns the registry entry of budgets.
pub(crate) fn budgets(registry: &Registry) -> Option<Arc<Resource>> {
    registry.find("policy", "v1", "poddisruptionbudgets")
}

/// Returns whether a pod is evicted whatever its budgets say: it doesn't run yet or any more.
pub(crate) fn is_unprotected(pod: &Value) -> bool {
    has_ended(pod) || text(pod, "/status/phase") == "Pending"
}

/// Returns whether an unprotected pod remains so.
pub(crate) fn has_ended(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") || meta::is_terminating(pod)
}

/// Returns whether a budget of the pod's namespace selects the pod. An invalid selector selects nothing.
pub(crate) fn protects(budget: &Value, pod: &Value) -> bool {
    let selector = LabelSelector::from_object(&budget["spec"]["selector"]);
    selector.is_ok_and(|selector| selector.matches_labels(&pod["metadata"]["labels"]))
}

/// Returns whether a pod that isn't ready may be evicted without being counted: its budget says so, or is kept without
/// it.
pub(crate) fn is_uncounted(budget: &Value, pod: &Value) -> bool {
    let is_ready = list(pod, "/status/conditions").iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
    if is_ready {
        return false;
    }
    let (healthy, desired) = health(budget);
    text(budget, "/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow" || healthy >= desired && desired > 0
}

/// Returns the numbers of healthy pods: the current one and the desired one.
fn health(budget: &Value) -> (i64, i64) {
    (int(budget, "/status/currentHealthy"), int(budget, "/status/desiredHealthy"))
}

/// Returns a budget after the eviction of a pod: one disruption fewer is allowed, and the pod is recorded so that the
/// disruption controller doesn't count it until it is deleted.
///
/// # Errors
/// Returns 429 if the budget doesn't allow the eviction, and 403 if its status is unusable.
pub(crate) fn disrupt(budget: &Value, pod: &str, now: Timestamp) -> Result<Value, Status> {
    let name = text(budget, "/metadata/name");
    let forbidden = |why: &str| Err(Status::forbidden("policy", "poddisruptionbudget", name, why));
    if int(budget, "/status/observedGeneration") < int(budget, "/metadata/generation") {
        return Err(unprocessed(name));
    }
    let allowed = int(budget, "/status/disruptionsAllowed");
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if entries(budget, "/status/disruptedPods").count() > MAX_DISRUPTED_PODS {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed == 0 {
        return Err(refused(None, refusal(budget)));
    }
    let mut budget = budget.clone();
    within(&mut budget, "status", |status| {
        set(status, "disruptionsAllowed", allowed - 1);
        if allowed == 1 {
            exhaust(status, now);
        }
        within(status, "disruptedPods", |pods| set(pods, pod, meta::time(now)));
    });
    Ok(budget)
}

/// Returns the error about a budget whose status isn't up to date.
pub(crate) fn unprocessed(budget: &str) -> Status {
    refused(Some(10), format!("The disruption budget {budget} is still being processed by the server."))
}

fn refused(retry_after_seconds: Option<u32>, why: String) -> Status {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut status = Status::generic(429, "TooManyRequests", message);
    if let Some(details) = &mut status.details {
        details.causes.push(Cause::new("DisruptionBudget", "", why));
        details.retry_after_seconds = retry_after_seconds;
    }
    status
}

/// Returns the reason why a budget doesn't allow disruptions.
fn refusal(budget: &Value) -> String {
    let name = text(budget, "/metadata/name");
    let (healthy, desired) = health(budget);
    let condition = list(budget, "/status/conditions").iter().find(|one| one["type"] == ALLOWED);
    let condition = condition.filter(|one| one["status"] == "False");
    let (reason, message) =
        condition.map_or(("", ""), |condition| (text(condition, "/reason"), text(condition, "/message")));
    if !message.is_empty() && reason == "SyncFailed" {
        return format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        );
    }
    if healthy <= desired {
        return format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently");
    }
    let why = if message.is_empty() { String::new() } else { format!(" ({reason}): {message}") };
    format!("The disruption budget {name} does not allow evicting pods currently{why}")
}

/// Sets the condition of a budget that allows no more disruptions.
fn exhaust(status: &mut Value, now: Timestamp) {
    let condition = json!({
        "type": ALLOWED, "status": "False", "observedGeneration": int(status, "/observedGeneration"),
        "lastTransitionTime": meta::time(now), "reason": "InsufficientPods", "message": "",
    });
    put_condition(status, condition);
}

/// Replaces the condition of the same type, whose transition time remains if its status is the same.
fn put_condition(status: &mut Value, mut condition: Value) {
    let mut conditions = list(status, "/conditions").to_vec();
    match conditions.iter_mut().find(|one| one["type"] == condition["type"]) {
        Some(present) => {
            if present["status"] == condition["status"] {
                condition["lastTransitionTime"] = present["lastTransitionTime"].take();
            }
            *present = condition;
        }
        None => conditions.push(condition),
    }
    set(status, "conditions", conditions);
}

/// Adds the condition that says why an evicted pod ends.
pub(crate) fn mark(pod: &mut Value, now: Timestamp) {
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "lastProbeTime": null, "lastTransitionTime": meta::time(now),
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
    });
    within(pod, "status", |status| put_condition(status, condition));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(status: Value) -> Value {
        json!({
            "metadata": {"name": "b", "generation": 2}, "spec": {"selector": {"matchLabels": {"app": "x"}}},
            "status": status,
        })
    }

    fn pod(phase: &str, ready: &str) -> Value {
        json!({
            "metadata": {"name": "p", "labels": {"app": "x"}},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
        })
    }

    #[track_caller]
    fn check_refused(status: Value, expect: (u16, &str)) {
        let error = disrupt(&budget(status), "p", Timestamp::UNIX_EPOCH).unwrap_err();
        let cause = error.details.as_ref().and_then(|details| details.causes.first());
        let text = cause.map_or(&*error.message, |cause| &*cause.message);
        assert_eq!((error.code, text), expect);
    }

    #[test]
    fn a_budget_counts_each_disruption() {
        let full = budget(json!({"observedGeneration": 2, "disruptionsAllowed": 2}));
        let one = disrupt(&full, "p", Timestamp::UNIX_EPOCH).unwrap();
        let expect = json!({
            "observedGeneration": 2, "disruptionsAllowed": 1, "disruptedPods": {"p": "1970-01-01T00:00:00Z"},
        });
        assert_eq!(one["status"], expect);
        let none = disrupt(&one, "q", Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(none["status"]["disruptionsAllowed"], 0);
        assert_eq!(none["status"]["disruptedPods"].as_object().unwrap().len(), 2);
        assert_eq!(none["status"]["conditions"][0]["reason"], "InsufficientPods");
    }

    #[test]
    fn refusals_have_the_words_of_kubernetes() {
        check_refused(
            json!({"observedGeneration": 1, "disruptionsAllowed": 1}),
            (429, "The disruption budget b is still being processed by the server."),
        );
        check_refused(
            json!({"observedGeneration": 2, "currentHealthy": 1, "desiredHealthy": 1}),
            (429, "The disruption budget b needs 1 healthy pods and has 1 currently"),
        );
        check_refused(
            json!({"observedGeneration": 2, "currentHealthy": 2, "desiredHealthy": 1}),
            (429, "The disruption budget b does not allow evicting pods currently"),
        );
        let condition = |reason: &str| json!([{"type": ALLOWED, "status": "False", "reason": reason, "message": "m"}]);
        check_refused(
            json!({"observedGeneration": 2, "conditions": condition("SyncFailed")}),
            (429, "The disruption budget b does not allow evicting pods currently because it failed sync: m"),
        );
        check_refused(
            json!({"observedGeneration": 2, "currentHealthy": 2, "conditions": condition("R")}),
            (429, "The disruption budget b does not allow evicting pods currently (R): m"),
        );
        check_refused(
            json!({"observedGeneration": 2, "disruptionsAllowed": -1}),
            (403, "poddisruptionbudget.policy \"b\" is forbidden: pdb disruptions allowed is negative"),
        );
    }

    #[test]
    fn pods_that_do_not_run_are_unprotected() {
        let check =
            |phase, expect| assert_eq!((is_unprotected(&pod(phase, "True")), has_ended(&pod(phase, ""))), expect);
        check("Pending", (true, false));
        check("Running", (false, false));
        check("Succeeded", (true, true));
        check("Failed", (true, true));
        let mut ending = pod("Running", "True");
        ending["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
        assert!(is_unprotected(&ending));
    }

    #[test]
    fn unhealthy_pods_are_uncounted_by_policy_or_while_the_budget_is_kept() {
        let check = |healthy: i64, desired: i64, policy: Value, ready: &str, expect: bool| {
            let mut budget = budget(json!({"currentHealthy": healthy, "desiredHealthy": desired}));
            budget["spec"]["unhealthyPodEvictionPolicy"] = policy;
            assert_eq!(is_uncounted(&budget, &pod("Running", ready)), expect);
        };
        check(1, 1, Value::Null, "True", false);
        check(1, 1, Value::Null, "False", true);
        check(0, 1, Value::Null, "False", false);
        check(0, 0, Value::Null, "False", false);
        check(0, 1, json!("IfHealthyBudget"), "False", false);
        check(0, 1, json!("AlwaysAllow"), "False", true);
    }

    #[test]
    fn budgets_protect_the_pods_that_they_select() {
        let mut budget = budget(json!({}));
        assert!(protects(&budget, &pod("Running", "True")));
        budget["spec"]["selector"] = json!({});
        assert!(protects(&budget, &pod("Running", "True")));
        budget["spec"]["selector"] = Value::Null;
        assert!(!protects(&budget, &pod("Running", "True")));
    }

    #[test]
    fn an_evicted_pod_has_a_condition() {
        let mut evicted = pod("Running", "True");
        mark(&mut evicted, Timestamp::UNIX_EPOCH);
        let first = evicted.clone();
        assert_eq!(evicted["status"]["conditions"][1]["reason"], "EvictionByEvictionAPI");
        mark(&mut evicted, Timestamp::from_second(60).unwrap());
        assert_eq!(evicted, first);
    }
}
