//! Commands whose pods are processes, in real time.

use at_operator::api::v1alpha1::{At, Phase};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kubewright::simulation::env::{TestEnv, eventually, within_a_minute};
use kubewright_cluster::{Pods, faults::Faults};

use crate::fixtures::{PAST, at, reaches, ready};

async fn env() -> TestEnv {
    TestEnv::with(Pods::Run, at_operator::register, at_operator::crds()).await
}

#[tokio::test]
async fn a_command_runs_and_its_output_is_kept() {
    within_a_minute(runs()).await;
}

async fn runs() {
    let env = env().await;
    let operator = env.start(&Faults::new());
    env.create(at(PAST, "sh -c 'echo YAY \"for  two\"'")).await;
    let status = reaches(&env, Phase::Done, "Succeeded").await;
    assert_eq!(status.exit_code, Some(0));
    assert!(status.completion_time >= status.start_time);
    assert_eq!(env.api::<Pod>().logs("lunch-pod", &Default::default()).await.unwrap(), "YAY for  two\n");
    env.delete::<At>("lunch").await;
    eventually("the pod is gone", async || env.pods().await.is_empty()).await;
    operator.stop().await;
}

#[tokio::test]
async fn a_pod_that_is_deleted_while_it_runs_is_not_run_again() {
    within_a_minute(is_deleted()).await;
}

async fn is_deleted() {
    let env = env().await;
    let operator = env.start(&Faults::new());
    env.create(at(PAST, "sleep 600")).await;
    eventually("it runs", async || {
        let pod = env.api::<Pod>().get_opt("lunch-pod").await.unwrap();
        pod.and_then(|pod| pod.status?.phase).as_deref() == Some("Running")
    })
    .await;
    let now = DeleteParams { grace_period_seconds: Some(1), ..DeleteParams::default() };
    env.api::<Pod>().delete("lunch-pod", &now).await.unwrap();
    eventually("it is over", async || {
        env.get::<At>("lunch").await.status.is_some_and(|status| status.phase == Some(Phase::Done))
    })
    .await;
    eventually("the pod is gone", async || env.pods().await.is_empty()).await;
    let status = env.get::<At>("lunch").await.status.unwrap();
    let (ready, reason) = ready(&status);
    assert!(ready == "False" && ["Failed", "PodLost"].contains(&reason.as_str()), "{status:?}");
    operator.stop().await;
}
