//! The files under `config`.

use cronjob_operator::api::v1::{ConcurrencyPolicy, CronJob};
use k8s_openapi::api::{batch::v1::Job, core::v1::Service};
use kube::ResourceExt;
use kubewright::simulation::{
    Span,
    env::{eventually, granted, needed},
};
use kubewright_cluster::faults::Faults;
use serde_json::Value;

use crate::fixtures::{DAILY, FIRST, cronjob, end_job, env, job, jobs, reaches, with_policy};

#[test]
fn the_crd_can_be_applied_by_the_client() {
    let crd = include_str!("../../config/crd/bases/batch.tutorial.kubebuilder.io_cronjobs.yaml");
    assert!(crd.len() < 262_144 / 4, "{}", crd.len());
}

/// The files that aren't generated refer to each other; the names in rules have no prefix.
#[test]
fn service_and_roles_are_for_the_webhooks() {
    let service: Service = serde_saphyr::from_str(include_str!("../../config/webhook/service.yaml")).unwrap();
    assert_eq!((service.name_any(), service.namespace()), ("webhook-service".into(), Some("system".into())));
    assert_eq!(service.spec.unwrap().ports.unwrap()[0].port, 443);
    let roles: Vec<Value> = serde_saphyr::from_multiple(include_str!("../../config/webhook/role.yaml")).unwrap();
    let rules = roles.iter().flat_map(|role| role["rules"].as_array().unwrap());
    let names: Vec<_> = rules.filter_map(|rule| rule["resourceNames"][0].as_str()).collect();
    let expected = ["webhook-server-cert", "mutating-webhook-configuration", "validating-webhook-configuration"];
    assert_eq!(names, expected.map(|suffix| format!("cronjob-operator-{suffix}")));
}

#[test]
fn the_sample_matches_the_source() {
    let sample: CronJob = serde_saphyr::from_str(include_str!("../../config/samples/batch_v1_cronjob.yaml")).unwrap();
    assert_eq!(sample.spec.schedule, "*/1 * * * *");
    assert_eq!(sample.spec.starting_deadline_seconds, Some(60));
    assert_eq!(sample.spec.concurrency_policy, Some(ConcurrencyPolicy::Allow));
    let template = sample.spec.job_template.read().unwrap();
    let pod = template.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.containers[0].args.as_ref().unwrap()[2], "date; echo Hello from the Kubernetes cluster");
}

#[tokio::test(start_paused = true)]
async fn the_role_allows_what_is_used_and_no_more() {
    let (env, faults) = (env().await, Faults::new());
    // If the name is taken, the operator reads the Job by name.
    let mut others = Job { spec: cronjob("").spec.job_template.read().unwrap().spec, ..Job::default() };
    others.metadata.name = Some("taken-1580378460".into());
    env.create(others).await;
    let operator = env.start(&faults);
    let mut first = with_policy(DAILY, ConcurrencyPolicy::Forbid);
    first.spec.successful_jobs_history_limit = Some(0);
    env.create(first).await;
    let mut allowing = cronjob(DAILY);
    allowing.metadata.name = Some("allowing".into());
    env.create(allowing).await;
    let mut taken = cronjob(DAILY);
    taken.metadata.name = Some("taken".into());
    env.create(taken).await;
    job(&env, FIRST).await;
    end_job(&env, FIRST, true).await;
    let kept = ["allowing-1580378460", "taken-1580378460"];
    eventually("it is trimmed", async || jobs(&env).await == kept).await;
    reaches(&env, "Ready", "Scheduled").await;
    let mut other = cronjob("tomorrow");
    other.metadata.name = Some("other".into());
    // A repeated event becomes a series, which is a patch.
    for _ in 0..2 {
        env.create(other.clone()).await;
        tokio::time::sleep(1.minutes()).await;
        env.delete::<CronJob>("other").await;
    }
    operator.stop().await;

    let mut allowed = granted(include_str!("../../config/rbac/role.yaml"));
    // Some API servers require the first one themselves, and the recorder needs the second one only for repeated
    // events.
    assert!(allowed.remove("batch.tutorial.kubebuilder.io cronjobs/finalizers update"));
    allowed.remove("events.k8s.io events patch");
    let mut needed = needed(&faults);
    needed.remove("events.k8s.io events patch");
    assert_eq!(needed, allowed);
}
