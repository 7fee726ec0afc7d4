//! Validation of the status of jobs.

use serde_json::Value;

use super::validate::{common_index, count_indexes};
use crate::{
    fields::flag,
    registry::builtin::validation::{
        Errors, Path, Shown, field, int, items, optional_int, optional_string, string, validate_nonnegative,
    },
};

/// A job, whose status is read by condition.
#[derive(Clone, Copy)]
struct Job<'a>(&'a Value);

impl<'a> Job<'a> {
    fn status(self) -> &'a Value {
        &self.0["status"]
    }

    fn is(self, kind: &str) -> bool {
        let holds = |one: &Value| string(one, "type") == kind && string(one, "status") == "True";
        items(self.status(), "conditions").iter().any(holds)
    }

    fn is_finished(self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    /// Returns whether a condition or a finish began or ended.
    fn changes(self, old: Self, is: impl Fn(Self) -> bool) -> bool {
        is(self) != is(old)
    }

    fn changes_field(self, old: Self, name: &str) -> bool {
        field(self.status(), name) != field(old.status(), name)
    }
}

/// Checks an update of a job's status. As in Kubernetes, most rules apply only if the update changes what they are
/// about.
pub(super) fn validate_status(old: &Value, new: &Value, errors: &mut Errors) {
    let (old, new, path) = (Job(old), Job(new), Path::new("status"));
    for name in ["active", "succeeded", "failed", "ready", "terminating"] {
        validate_nonnegative(int(new.status(), name), &path.child(name), errors);
    }
    validate_uncounted(new.status(), &path.child("uncountedTerminatedPods"), errors);
    validate_complete(old, new, &path, errors);
    validate_reasons(old, new, &path.child("conditions"), errors);
    validate_finished(old, new, &path, errors);
    validate_indexes(old, new, &path, errors);
    validate_pods(old, new, &path, errors);
    validate_success(new, &path.child("conditions"), errors);
    validate_transitions(old, new, &path, errors);
}

/// The conditions that exclude success, with their names in messages.
const FAILURES: [(&str, &str); 2] = [("Failed", "Failed=true"), ("FailureTarget", "FailureTarget=true")];

fn validate_uncounted(status: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = std::collections::BTreeSet::new();
    for name in ["succeeded", "failed"] {
        let path = path.child(name);
        for (index, uid) in items(&status["uncountedTerminatedPods"], name).iter().enumerate() {
            let uid = uid.as_str().unwrap_or_default();
            if uid.is_empty() {
                errors.invalid(&path.index(index), uid, "must not be empty");
            } else if !seen.insert(uid) {
                errors.duplicate(&path.index(index), uid);
            }
        }
    }
}

fn validate_complete(old: Job<'_>, new: Job<'_>, path: &Path<'_>, errors: &mut Errors) {
    let completes = new.changes(old, |job| job.is("Complete"));
    for (kind, shown) in FAILURES {
        if (completes || new.changes(old, |job| job.is(kind))) && new.is("Complete") && new.is(kind) {
            let why = format!("cannot set Complete=True and {shown} conditions");
            errors.invalid_without_value(&path.child("conditions"), &why);
        }
    }
    let (start, end) = (field(new.status(), "startTime"), field(new.status(), "completionTime"));
    let (starts, ends) = (new.changes_field(old, "startTime"), new.changes_field(old, "completionTime"));
    let path = path.child("completionTime");
    if completes || ends {
        match (end, new.is("Complete")) {
            (Some(end), false) => {
                let why = "cannot set completionTime when there is no Complete=True condition";
                errors.invalid(&path, end.clone(), why);
            }
            (None, true) => errors.required(&path, "completionTime is required for Complete jobs"),
            _ => {}
        }
    }
    let time = |value: &Value| value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    if let (Some(started), Some(end)) = (start.and_then(time), end)
        && (starts || ends)
        && time(end).is_some_and(|end| end < started)
    {
        errors.invalid(&path, end.clone(), "must be equal to or after `startTime`");
    }
}

/// Checks that a finished job has the condition that precedes its end.
fn validate_reasons(old: Job<'_>, new: Job<'_>, path: &Path<'_>, errors: &mut Errors) {
    let changes = |kinds: &[&str]| kinds.iter().any(|kind| new.changes(old, |job| job.is(kind)));
    let failed = changes(&["Failed"]) || new.changes_field(old, "failedIndexes");
    if failed && new.is("Failed") && !new.is("FailureTarget") {
        let why = "cannot set Failed=True condition without the FailureTarget=true condition";
        errors.invalid_without_value(path, why);
    }
    if changes(&["Complete", "SuccessCriteriaMet"]) && new.is("Complete") && !new.is("SuccessCriteriaMet") {
        let why = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        errors.invalid_without_value(path, why);
    }
}

fn validate_finished(old: Job<'_>, new: Job<'_>, path: &Path<'_>, errors: &mut Errors) {
    if !new.is_finished() {
        return;
    }
    let (status, spec) = (new.status(), &new.0["spec"]);
    let changes = |name: &str| new.changes(old, Job::is_finished) || new.changes_field(old, name);
    let active = int(status, "active");
    if changes("active") && active > 0 {
        errors.invalid(&path.child("active"), active, "active>0 is invalid for finished job");
    }
    let never_runs = flag(spec, "/suspend") && optional_int(spec, "completions") == Some(0);
    if changes("startTime") && !never_runs && field(status, "startTime").is_none() {
        errors.required(&path.child("startTime"), "startTime is required for finished job");
    }
    let uncounted = &status["uncountedTerminatedPods"];
    if changes("uncountedTerminatedPods")
        && ["succeeded", "failed"].iter().any(|name| !items(uncounted, name).is_empty())
    {
        let shown = |name: &str| Shown::nullable(uncounted.get(name));
        let shown = Shown::object([("Succeeded", shown("succeeded")), ("Failed", shown("failed"))]);
        errors.invalid(&path.child("uncountedTerminatedPods"), shown, "must be empty for finished job");
    }
}

/// Checks the numbers of pods.
fn validate_pods(old: Job<'_>, new: Job<'_>, path: &Path<'_>, errors: &mut Errors) {
    let (status, finishes) = (new.status(), new.changes(old, Job::is_finished));
    let terminating = int(status, "terminating");
    if new.is_finished() && terminating > 0 && (finishes || new.changes_field(old, "terminating")) {
        errors.invalid(&path.child("terminating"), terminating, "terminating>0 is invalid for finished job");
    }
    let changed = ["ready", "active"].iter().any(|name| new.changes_field(old, name));
    if let Some(ready) = optional_int(status, "ready")
        && changed
        && ready > int(status, "active")
    {
        errors.invalid(&path.child("ready"), ready, "cannot set more ready pods than active");
    }
}

fn validate_success(new: Job<'_>, path: &Path<'_>, errors: &mut Errors) {
    for (kind, shown) in FAILURES {
        if new.is("SuccessCriteriaMet") && new.is(kind) {
            errors.invalid_without_value(path, &format!("cannot set SuccessCriteriaMet=True and {shown} conditions"));
        }
    }
    if field(&new.0["spec"], "successPolicy").is_some() && new.is("Complete") && !new.is("SuccessCriteriaMet") {
        let why = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        errors.invalid_without_value(path, why);
    }
}

fn validate_indexes(old: Job<'_>, new: Job<'_>, path: &Path<'_>, errors: &mut Errors) {
    let spec = &new.0["spec"];
    let limits_each_index = field(spec, "backoffLimitPerIndex").is_some();
    let fits = [string(spec, "completionMode") == "Indexed", limits_each_index];
    let why = [
        "cannot set non-empty completedIndexes when non-indexed completion mode",
        "cannot set non-null failedIndexes when backoffLimitPerIndex is null",
    ];
    for (index, name) in ["completedIndexes", "failedIndexes"].into_iter().enumerate() {
        let Some(text) = optional_string(new.status(), name).filter(|_| new.changes_field(old, name)) else { continue };
        if let Some(completions) = optional_int(spec, "completions")
            && (index == 0 || limits_each_index)
            && let Err(why) = count_indexes(text, completions)
        {
            errors.invalid(&path.child(name), text, &format!("error parsing {name}: {why}"));
        }
        if !fits[index] {
            errors.invalid(&path.child(name), text, why[index]);
        }
    }
    let (completed, failed) = ["completedIndexes", "failedIndexes"].map(|name| string(new.status(), name)).into();
    let changed = ["completedIndexes", "failedIndexes"].iter().any(|name| new.changes_field(old, name));
    if let Some(completions) = optional_int(spec, "completions").filter(|_| changed)
        && let Some(index) = common_index(completed, failed, completions)
    {
        let why = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.invalid(&path.child("failedIndexes"), failed, &why);
    }
}

/// Checks that a finished job stays so, and that nothing is uncounted.
fn validate_transitions(old: Job<'_>, new: Job<'_>, path: &Path<'_>, errors: &mut Errors) {
    let conditions = path.child("conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if old.is(kind) && !new.is(kind) {
            let why = format!("cannot disable the terminal {kind}=True condition");
            errors.invalid_without_value(&conditions, &why);
        }
    }
    let spec = &new.0["spec"];
    let scales =
        string(spec, "completionMode") == "Indexed" && field(spec, "completions") == field(spec, "parallelism");
    for name in ["failed", "succeeded"].into_iter().filter(|name| *name == "failed" || !scales) {
        let number = int(new.status(), name);
        if number < int(old.status(), name) {
            errors.invalid(&path.child(name), number, &format!("cannot decrease the {name} counter"));
        }
    }
    let (before, after) = (field(old.status(), "completionTime"), field(new.status(), "completionTime"));
    if let (Some(_), Some(time)) = (before, after.filter(|time| Some(*time) != before)) {
        errors.invalid(&path.child("completionTime"), time.clone(), "field is immutable");
    }
    let resumes = old.is("Suspended") && !new.is("Suspended");
    if let Some(before) = field(old.status(), "startTime")
        && !resumes
        && !flag(spec, "/suspend")
        && field(new.status(), "startTime") != Some(before)
    {
        let shown = new.status()["startTime"].clone();
        errors.invalid(&path.child("startTime"), shown, "field is immutable for unsuspended job once set");
    }
    if old.is("SuccessCriteriaMet") && !new.is("SuccessCriteriaMet") {
        errors.invalid_without_value(&conditions, "cannot disable the SuccessCriteriaMet=True condition");
    }
    if old.is("Complete") && !old.is("SuccessCriteriaMet") && new.is("SuccessCriteriaMet") {
        let why = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.invalid_without_value(&conditions, why);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(old: Value, new: Value, expected: &[&str]) {
        let job = |status: Value| json!({"spec": {"completionMode": "NonIndexed", "completions": 1}, "status": status});
        let causes = Errors::collect(|errors| validate_status(&job(old), &job(new), errors));
        assert_eq!(causes.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    fn conditions(kinds: &[&str]) -> Value {
        kinds.iter().map(|kind| json!({"type": kind, "status": "True"})).collect()
    }

    #[test]
    fn a_finished_job_is_complete_or_failed_for_a_reason() {
        let complete = json!({
            "conditions": conditions(&["SuccessCriteriaMet", "Complete"]), "succeeded": 1,
            "startTime": "2024-01-01T00:00:00Z", "completionTime": "2024-01-01T00:00:01Z",
        });
        check(json!({}), complete.clone(), &[]);
        check(complete.clone(), complete.clone(), &[]);
        check(
            json!({}),
            json!({"conditions": conditions(&["Complete"])}),
            &[
                "status.completionTime: Required value: completionTime is required for Complete jobs",
                "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true \
                 condition",
                "status.startTime: Required value: startTime is required for finished job",
            ],
        );
        let mut earlier = complete.clone();
        earlier["completionTime"] = json!("2023-01-01T00:00:00Z");
        let why =
            "status.completionTime: Invalid value: \"2023-01-01T00:00:00Z\": must be equal to or after `startTime`";
        check(json!({}), earlier, &[why]);
        check(
            complete,
            json!({"startTime": "2024-01-01T00:00:00Z", "succeeded": 1}),
            &[
                "status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
                "status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition",
            ],
        );
    }

    #[test]
    fn counters_are_consistent() {
        check(
            json!({"failed": 2}),
            json!({"failed": 1}),
            &["status.failed: Invalid value: 1: cannot decrease the failed counter"],
        );
        check(
            json!({}),
            json!({"active": 1, "ready": 2}),
            &["status.ready: Invalid value: 2: cannot set more ready pods than active"],
        );
        check(
            json!({}),
            json!({"completedIndexes": "0"}),
            &[
                "status.completedIndexes: Invalid value: \"0\": cannot set non-empty completedIndexes when non-indexed completion \
             mode",
            ],
        );
    }
}
