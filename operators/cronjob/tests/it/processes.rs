//! Jobs whose pods are processes, in real time.

use cronjob_operator::api::v1::CronJob;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::ResourceExt;
use kubewright::simulation::{
    Span,
    env::{TestEnv, eventually},
};
use kubewright_cluster::{Pods, faults::Faults};
use serde_json::json;
use tokio::time::timeout;

use crate::fixtures::{cronjob, jobs, status, suspend};

#[tokio::test]
async fn jobs_run_to_their_end_and_one_is_kept() {
    timeout(1.minutes(), run()).await.expect("it should take less than a minute");
}

async fn run() {
    let env = TestEnv::with(Pods::Run, cronjob_operator::register, cronjob_operator::crds()).await;
    let operator = env.start(&Faults::new());
    let mut often = cronjob("@every 1s");
    often.spec.successful_jobs_history_limit = Some(1);
    let command = json!(["sh", "-c", "date; echo Hello"]);
    often.spec.job_template.0["spec"]["template"]["spec"]["containers"][0]["args"] = command;
    env.create(often).await;
    eventually("one succeeds", async || status(&env).await.last_successful_time.is_some()).await;
    suspend(&env, true).await;
    eventually("all have ended and one is kept", async || {
        let ended = env
            .list::<Job>()
            .await
            .iter()
            .all(|job| job.status.as_ref().is_some_and(|status| status.completion_time.is_some()));
        ended && jobs(&env).await.len() == 1 && status(&env).await.active.is_empty()
    })
    .await;
    let pods = env.list::<Pod>().await;
    let kept = &jobs(&env).await[0];
    let pod = pods.iter().find(|pod| pod.name_any().starts_with(kept.as_str())).unwrap();
    let logs = env.api::<Pod>().logs(&pod.name_any(), &Default::default()).await.unwrap();
    assert!(logs.ends_with("Hello\n"), "{logs}");
    env.delete::<CronJob>("lunch").await;
    eventually("all is gone", async || jobs(&env).await.is_empty() && env.list::<Pod>().await.is_empty()).await;
    operator.stop().await;
}
