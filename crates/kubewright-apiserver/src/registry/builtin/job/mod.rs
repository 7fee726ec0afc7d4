//! Jobs and cron jobs.

mod schedule;
mod status;
mod validate;

use jiff::Timestamp;
use kubewright_apimachinery::status::Cause;
use serde_json::{Map, Value};

use super::{
    columns::{NONE, age, boolean, container_fields, integer, of_template, selector, string, truth, value_or},
    pod::name_warning,
    validation::{Errors, Path},
    workload::{default_template, warnings_if_changed},
};
use crate::{
    fields::{each, fill, fill_zero, flag, has, int, list, present, set, text, within},
    registry::{Column, Strategy},
    table::{age_of, human_duration},
};

/// The strategy of jobs. The server gives each job a unique selector, so that no two jobs adopt each other's pods.
#[derive(Debug)]
pub(super) struct JobStrategy;

impl Strategy for JobStrategy {
    fn unsupported_field(&self, label: &str) -> String {
        format!("field label {label:?} not supported for Job")
    }

    fn default(&self, object: &mut Value) {
        within(object, "spec", default_spec);
        label_by_template(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        if flag(object, "/spec/manualSelector") {
            return;
        }
        select_own_pods(object);
        label_by_template(object);
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| match old {
            None => validate::validate_job(new, errors),
            Some(old) => validate::validate_update(old, new, errors),
        })
    }

    fn validate_status(&self, old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| status::validate_status(old, new, errors))
    }

    fn warnings(&self, old: Option<&Value>, new: &Value) -> Vec<String> {
        let mut warnings = name_warning(old, new);
        warnings.extend(warnings_if_changed(old, new, &new["spec"]["template"], &Path::new("spec.template")));
        warnings
    }

    fn has_own_validation(&self) -> bool {
        true
    }
}

/// Sets the defaults of a job's spec.
fn default_spec(spec: &mut Value) {
    default_template(spec);
    default_failure_policy(spec);
    if !has(spec, "/completions") && !has(spec, "/parallelism") {
        fill(spec, "completions", 1);
    }
    fill(spec, "parallelism", 1);
    let retries = if has(spec, "/backoffLimitPerIndex") { i32::MAX } else { 6 };
    fill(spec, "backoffLimit", retries);
    fill(spec, "completionMode", "NonIndexed");
    fill(spec, "suspend", false);
    let replace = if has(spec, "/podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    fill(spec, "podReplacementPolicy", replace);
    fill(spec, "manualSelector", false);
}

/// Gives a job without labels those of its pods.
fn label_by_template(job: &mut Value) {
    let labels = job.pointer("/spec/template/metadata/labels").filter(|labels| labels.is_object()).cloned();
    if let Some(labels) = labels {
        within(job, "metadata", |metadata| {
            if metadata["labels"].as_object().is_none_or(Map::is_empty) {
                set(metadata, "labels", labels);
            }
        });
    }
}

/// Sets the selector of a job, and the labels of its pods that it selects.
fn select_own_pods(object: &mut Value) {
    let (uid, name) = (text(object, "/metadata/uid").to_owned(), text(object, "/metadata/name").to_owned());
    within(object, "spec", |spec| {
        within(spec, "template", |template| {
            within(template, "metadata", |metadata| {
                within(metadata, "labels", |labels| {
                    for prefix in ["", "batch.kubernetes.io/"] {
                        fill(labels, &format!("{prefix}controller-uid"), uid.clone());
                        fill(labels, &format!("{prefix}job-name"), name.clone());
                    }
                });
            });
        });
        within(spec, "selector", |selector| {
            within(selector, "matchLabels", |labels| fill(labels, "batch.kubernetes.io/controller-uid", uid));
        });
    });
}

fn default_failure_policy(spec: &mut Value) {
    present(spec, "podFailurePolicy", |policy| {
        for rule in each(policy, "rules") {
            each(rule, "onPodConditions").for_each(|condition| fill_zero(condition, "status", "True"));
        }
    });
}

/// The strategy of cron jobs.
#[derive(Debug)]
pub(super) struct CronJobStrategy;

impl Strategy for CronJobStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            fill_zero(spec, "concurrencyPolicy", "Allow");
            fill(spec, "suspend", false);
            fill(spec, "successfulJobsHistoryLimit", 3);
            fill(spec, "failedJobsHistoryLimit", 1);
            // As in Kubernetes, the other defaults of the job are set when it is created.
            within(spec, "jobTemplate", |template| {
                within(template, "spec", |spec| {
                    default_template(spec);
                    default_failure_policy(spec);
                });
            });
        });
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| schedule::validate_cron_job(old, new, errors))
    }

    fn validate_status(&self, _old: &Value, _new: &Value) -> Vec<Cause> {
        Vec::new()
    }

    fn warnings(&self, old: Option<&Value>, new: &Value) -> Vec<String> {
        let template = &new["spec"]["jobTemplate"]["spec"]["template"];
        let mut warnings = name_warning(old, new);
        let path = Path::new("spec.jobTemplate.spec.template");
        warnings.extend(warnings_if_changed(old, new, template, &path));
        if old.is_some() && text(new, "/spec/schedule").contains("TZ") {
            let page = "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/";
            let why = format!("use timeZone instead, see {page} for more details");
            warnings.push(format!("cannot use TZ or CRON_TZ in spec.spec.schedule, {why}"));
        }
        warnings
    }

    fn has_own_validation(&self) -> bool {
        true
    }
}

/// Returns the value for the field selector `status.successful`.
pub(super) fn successful(job: &Value) -> String {
    int(job, "/status/succeeded").to_string()
}

pub(super) fn job_columns() -> Vec<Column> {
    let mut columns = vec![
        string("Status", |job, _| state(job).into()),
        string("Completions", |job, _| completions(job).into()),
        string("Duration", |job, now| duration(job, now).into()),
        age(),
    ];
    columns.extend(of_template());
    columns
}

fn state(job: &Value) -> &'static str {
    let holds = |kind: &str| {
        list(job, "/status/conditions")
            .iter()
            .any(|condition| text(condition, "/type") == kind && text(condition, "/status") == "True")
    };
    match () {
        () if holds("Complete") => "Complete",
        () if holds("Failed") => "Failed",
        () if has(job, "/metadata/deletionTimestamp") => "Terminating",
        () if holds("Suspended") => "Suspended",
        () if holds("FailureTarget") => "FailureTarget",
        () if holds("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions(job: &Value) -> String {
    let done = int(job, "/status/succeeded");
    if has(job, "/spec/completions") {
        return format!("{done}/{}", int(job, "/spec/completions"));
    }
    match int(job, "/spec/parallelism") {
        parallelism @ 2.. => format!("{done}/1 of {parallelism}"),
        _ => format!("{done}/1"),
    }
}

fn duration(job: &Value, now: Timestamp) -> String {
    let time = |pointer: &str| text(job, pointer).parse::<Timestamp>().ok();
    match (time("/status/startTime"), time("/status/completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => human_duration(end.unwrap_or(now).duration_since(start)),
    }
}

/// The pointer to the containers of a cron job.
const CONTAINERS: &str = "/spec/jobTemplate/spec/template/spec/containers";

pub(super) fn cron_job_columns() -> Vec<Column> {
    vec![
        string("Schedule", |object, _| text(object, "/spec/schedule").into()),
        string("Timezone", |object, _| value_or(object, "/spec/timeZone", NONE)),
        truth("Suspend", |object, _| boolean(object, "/spec/suspend", "<unset>")),
        integer("Active", |object, _| list(object, "/status/active").len().into()),
        string("Last Schedule", |object, now| match object.pointer("/status/lastScheduleTime") {
            None | Some(Value::Null) => NONE.into(),
            time => age_of(time, now).into(),
        }),
        age(),
        string("Containers", |object, _| container_fields(object, CONTAINERS, "name")).wide(),
        string("Images", |object, _| container_fields(object, CONTAINERS, "image")).wide(),
        string("Selector", |object, _| selector(object.pointer("/spec/jobTemplate/spec/selector")).into()).wide(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(spec: Value) -> Value {
        let mut job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": spec});
        JobStrategy.default(&mut job);
        JobStrategy.prepare_create(&mut job);
        job
    }

    fn template(policy: &str) -> Value {
        json!({"template": {"spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}}})
    }

    #[test]
    fn a_job_selects_its_own_pods_by_its_uid() {
        let job = job(template("Never"));
        assert_eq!(job["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}));
        let labels = &job["spec"]["template"]["metadata"]["labels"];
        for (key, value) in [
            ("controller-uid", "u"),
            ("job-name", "j"),
            ("batch.kubernetes.io/controller-uid", "u"),
            ("batch.kubernetes.io/job-name", "j"),
        ] {
            assert_eq!(labels[key], value);
        }
        assert_eq!(job["spec"]["completions"], 1);
        assert_eq!(JobStrategy.validate(None, &job), []);
    }

    #[test]
    fn a_condition_of_a_failed_pod_is_true_by_default() {
        let mut spec = template("Never");
        let condition = json!({"type": "DisruptionTarget"});
        spec["podFailurePolicy"] = json!({"rules": [{"action": "Ignore", "onPodConditions": [condition]}]});
        let job = job(spec);
        assert_eq!(job["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"], "True");
        assert_eq!(JobStrategy.validate(None, &job), []);
    }

    #[test]
    fn jobs_forbid_restart_policy_always_and_template_changes() {
        let always = JobStrategy.validate(None, &job(template("Always")));
        let expect = "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"";
        assert_eq!(always[0].to_string(), expect);
        let changed = JobStrategy.validate(Some(&job(template("OnFailure"))), &job(template("Never")));
        assert_eq!(changed[0].field, "spec.template");
    }

    #[test]
    fn the_template_of_a_stopped_job_can_be_scheduled_elsewhere() {
        let mut old = job(template("Never"));
        old["spec"]["suspend"] = true.into();
        let check = |status: Value, expected: &[&str]| {
            let mut old = old.clone();
            old["status"] = status;
            let mut new = old.clone();
            new["spec"]["template"]["spec"]["nodeSelector"] = json!({"a": "b"});
            let causes = JobStrategy.validate(Some(&old), &new);
            assert_eq!(causes.iter().map(|cause| cause.field.as_str()).collect::<Vec<_>>(), expected);
        };
        let begun = "2024-01-01T00:00:00Z";
        let stopped = json!([{"type": "Suspended", "status": "True"}]);
        check(json!({}), &[]);
        check(json!({"active": 1}), &["spec.template"]);
        check(json!({"startTime": begun}), &["spec.template"]);
        check(json!({"startTime": begun, "conditions": stopped}), &[]);
        check(json!({"startTime": begun, "conditions": stopped, "active": 1}), &["spec.template"]);
    }

    #[test]
    fn a_job_without_a_number_of_ready_pods_has_no_error_about_it() {
        let old = job(template("Never"));
        let mut new = old.clone();
        new["status"] = json!({"active": -1});
        let causes = JobStrategy.validate_status(&old, &new);
        let expected = "status.active: Invalid value: -1: must be greater than or equal to 0";
        assert_eq!(causes.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn columns_have_counts_and_durations() {
        let now = "2024-01-01T00:01:00Z".parse().unwrap();
        let mut job = job(template("Never"));
        assert_eq!((state(&job), completions(&job), duration(&job, now)), ("Running", "0/1".into(), String::new()));
        job["status"] = json!({
            "succeeded": 1, "startTime": "2024-01-01T00:00:00Z", "completionTime": "2024-01-01T00:00:07Z",
            "conditions": [{"type": "Complete", "status": "True"}],
        });
        assert_eq!((state(&job), completions(&job), duration(&job, now)), ("Complete", "1/1".into(), "7s".into()));
    }
}
