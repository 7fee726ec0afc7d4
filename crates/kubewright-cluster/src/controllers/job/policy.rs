//! The policies of a job: `podFailurePolicy`, `successPolicy` and the limits of failures per index
//! (<https://kubernetes.io/docs/concepts/workloads/controllers/job/#handling-pod-and-container-failures>).

use serde_json::Value;

use super::{index::Indexes, uncounted_pods::index_of};
use crate::controllers::value::{int, list, number, text};

/// The annotation of a pod with the number of earlier failures of its index.
pub(super) const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";

/// What a failed pod means for its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It counts as a failure.
    Count,
    /// It doesn't count.
    Ignore,
    /// Its index fails.
    FailIndex,
    /// The job fails, with a message.
    FailJob(String),
}

/// Applies the first rule of `podFailurePolicy` that matches a pod which has failed.
pub(super) fn verdict(job: &Value, pod: &Value) -> Verdict {
    if text(pod, "/status/phase") != "Failed" {
        return Verdict::Count;
    }
    for (index, rule) in list(job, "/spec/podFailurePolicy/rules").iter().enumerate() {
        let Some(what) = by_exit_code(rule, pod).or_else(|| by_condition(rule, pod)) else { continue };
        return match text(rule, "/action") {
            "Ignore" => Verdict::Ignore,
            "FailIndex" => Verdict::FailIndex,
            "FailJob" => Verdict::FailJob(format!("{what} matching FailJob rule at index {index}")),
            _ => Verdict::Count,
        };
    }
    Verdict::Count
}

fn pod_name(pod: &Value) -> String {
    format!("{}/{}", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"))
}

fn by_exit_code(rule: &Value, pod: &Value) -> Option<String> {
    let rule = rule.get("onExitCodes").filter(|rule| !rule.is_null())?;
    let (wanted, values) = (text(rule, "/containerName"), list(rule, "/values"));
    let statuses = list(pod, "/status/initContainerStatuses").iter().chain(list(pod, "/status/containerStatuses"));
    let found = statuses.filter(|status| wanted.is_empty() || status["name"] == wanted).find_map(|status| {
        let code = number(status, "/state/terminated/exitCode").filter(|code| *code != 0)?;
        let listed = values.iter().any(|value| value.as_i64() == Some(code));
        (listed == (text(rule, "/operator") == "In")).then(|| (text(status, "/name"), code))
    });
    found.map(|(name, code)| format!("Container {name} for pod {} failed with exit code {code}", pod_name(pod)))
}

fn by_condition(rule: &Value, pod: &Value) -> Option<String> {
    let matched = list(rule, "/onPodConditions").iter().find(|pattern| {
        let conditions = list(pod, "/status/conditions").iter();
        let wanted = pattern["status"].as_str().filter(|status| !status.is_empty()).unwrap_or("True");
        conditions.clone().any(|one| one["type"] == pattern["type"] && one["status"] == wanted)
    });
    matched.map(|pattern| format!("Pod {} has condition {}", pod_name(pod), text(pattern, "/type")))
}

/// Returns the message of the first pod for which the job has to fail.
pub(super) fn failed_job(job: &Value, pods: &[&Value]) -> Option<String> {
    pods.iter().find_map(|pod| match verdict(job, pod) {
        Verdict::FailJob(message) => Some(message),
        _ => None,
    })
}

/// Returns the maximum number of failures of an index, if failures are counted per index.
pub(super) fn limit_per_index(job: &Value) -> Option<i64> {
    number(job, "/spec/backoffLimitPerIndex")
}

/// Returns the number of failures of a pod's index before the pod.
pub(super) fn earlier_failures(pod: &Value) -> i64 {
    pod["metadata"]["annotations"][FAILURES].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Returns whether the index of a failed pod has failed with it.
pub(super) fn fails_index(job: &Value, pod: &Value) -> bool {
    let Some(limit) = limit_per_index(job) else { return false };
    match verdict(job, pod) {
        Verdict::Ignore => false,
        Verdict::FailIndex => true,
        Verdict::Count | Verdict::FailJob(_) => earlier_failures(pod) >= limit,
    }
}

/// Returns the number of failures of an index so far, for its next pod.
pub(super) fn failures(job: &Value, pods: &[&Value], index: i64) -> i64 {
    let of_index = pods.iter().filter(|pod| index_of(pod) == Some(index));
    let after = of_index.map(|pod| {
        let counts = super::has_failed(job, pod) && verdict(job, pod) != Verdict::Ignore;
        earlier_failures(pod) + i64::from(counts)
    });
    after.max().unwrap_or_default()
}

/// Returns the position of the first rule of `successPolicy` that the succeeded indexes satisfy.
pub(super) fn success_rule(job: &Value, succeeded: &Indexes) -> Option<usize> {
    let completions = int(job, "/spec/completions");
    list(job, "/spec/successPolicy/rules").iter().position(|rule| {
        let wanted = rule["succeededIndexes"].as_str().map(|text| Indexes::parse(text, completions).0);
        let found = match &wanted {
            Some(wanted) => wanted.intersection(&succeeded.0).count(),
            None => succeeded.0.len(),
        };
        let enough = number(rule, "/succeededCount").and_then(|count| usize::try_from(count).ok());
        found >= enough.unwrap_or(wanted.map_or(usize::MAX, |wanted| wanted.len()))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failed(code: i64, condition: &str) -> Value {
        json!({
            "metadata": {"namespace": "default", "name": "sum-x"},
            "status": {
                "phase": "Failed", "conditions": [{"type": condition, "status": "True"}],
                "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": code}}}],
            },
        })
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = json!([
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
            {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1, 2], "containerName": "main"}},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1], "containerName": "other"}},
        ]);
        let job = json!({"spec": {"podFailurePolicy": {"rules": rules}}});
        let check = |pod: Value, expect: Verdict| assert_eq!(verdict(&job, &pod), expect, "{pod}");
        check(failed(42, "DisruptionTarget"), Verdict::Ignore);
        let message = "Container main for pod default/sum-x failed with exit code 42 matching FailJob rule at index 1";
        check(failed(42, "Ready"), Verdict::FailJob(message.into()));
        check(failed(3, "Ready"), Verdict::FailIndex);
        check(failed(1, "Ready"), Verdict::Count);
        check(failed(0, "Ready"), Verdict::Count);
        check(json!({"status": {"phase": "Running"}}), Verdict::Count);
    }

    #[test]
    fn rules_of_success() {
        let check = |rules: Value, succeeded: &str, expect: Option<usize>| {
            let job = json!({"spec": {"completions": 5, "successPolicy": {"rules": rules}}});
            assert_eq!(success_rule(&job, &Indexes::parse(succeeded, 5)), expect, "{succeeded}");
        };
        let leaders = || json!([{"succeededIndexes": "0,4"}, {"succeededCount": 3}]);
        check(leaders(), "0", None);
        check(leaders(), "0,4", Some(0));
        check(leaders(), "1-3", Some(1));
        let one_of = json!([{"succeededIndexes": "0-2", "succeededCount": 1}]);
        check(one_of.clone(), "3,4", None);
        check(one_of, "1", Some(0));
    }
}
