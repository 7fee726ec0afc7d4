//! The Job of a migration.

use k8s_openapi::api::{
    batch::v1::{Job, JobSpec},
    core::v1::{Container, PodSpec, PodTemplateSpec},
};
use kube::api::ObjectMeta;
use kubewright::prelude::*;

use crate::api::v1::Migration;

// ANCHOR: of
/// Returns a Job that migrates to the version of the spec.
pub(crate) fn of(object: &Migration, metadata: ObjectMeta) -> Job {
    let version = object.spec.version.to_string();
    let container = Container {
        name: "migrate".into(),
        image: Some(object.spec.image.clone()),
        args: Some(vec![format!("--to={version}")]),
        ..Container::default()
    };
    let pod = PodSpec {
        containers: vec![container],
        restart_policy: Some("Never".into()),
        ..PodSpec::default()
    };
    let template = PodTemplateSpec { spec: Some(pod), ..PodTemplateSpec::default() };
    // A migration that fails isn't tried again before somebody has looked at it.
    let spec = JobSpec { backoff_limit: Some(0), template, ..JobSpec::default() };
    let labels = Some([("data.example.com/version".to_owned(), version)].into());
    Job { metadata: ObjectMeta { labels, ..metadata }, spec: Some(spec), ..Job::default() }
}
// ANCHOR_END: of

/// Returns whether a Job has succeeded or failed.
pub(crate) fn is_finished(job: &Job) -> bool {
    has(job, "Complete") || has(job, "Failed")
}

/// Returns status, reason and message of the condition `Ready`.
pub(crate) fn ready(job: Option<&Job>) -> (ConditionStatus, &'static str, &'static str) {
    match job {
        Some(job) if has(job, "Complete") => {
            (ConditionStatus::True, "Migrated", "the database has the version of the spec")
        }
        Some(job) if has(job, "Failed") => {
            (ConditionStatus::False, "Failed", "the Job of this version has failed")
        }
        Some(_) => (ConditionStatus::False, "Migrating", "the Job of this version is running"),
        None => (ConditionStatus::False, "Waiting", "no Job of this version is running yet"),
    }
}

fn has(job: &Job, condition: &str) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|it| it.type_ == condition && it.status == "True")
}
