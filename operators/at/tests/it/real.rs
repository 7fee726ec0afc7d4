//! Commands that really run: pods are processes, and time is real.

use at_operator::api::v1alpha1::{At, Phase};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kubewright_cluster::{Pods, faults::Faults};
use operator_kit::{World, eventually, soon};

use crate::scene::{PAST, at, reaches, ready};

async fn world() -> World {
    World::with(Pods::Run, at_operator::register, at_operator::crds()).await
}

#[tokio::test]
async fn a_command_runs_and_its_output_is_kept() {
    soon(runs()).await;
}

async fn runs() {
    let world = world().await;
    let operator = world.start(&Faults::new());
    world.create(at(PAST, "sh -c 'echo YAY \"for  two\"'")).await;
    let status = reaches(&world, Phase::Done, "Succeeded").await;
    assert_eq!(status.exit_code, Some(0));
    assert!(status.completion_time >= status.start_time);
    assert_eq!(world.api::<Pod>().logs("lunch-pod", &Default::default()).await.unwrap(), "YAY for  two\n");
    world.delete::<At>("lunch").await;
    eventually("the pod is gone", async || world.pods().await.is_empty()).await;
    operator.stop().await;
}

#[tokio::test]
async fn a_pod_that_is_deleted_while_it_runs_is_not_run_again() {
    soon(is_deleted()).await;
}

async fn is_deleted() {
    let world = world().await;
    let operator = world.start(&Faults::new());
    world.create(at(PAST, "sleep 600")).await;
    eventually("it runs", async || {
        let pod = world.api::<Pod>().get_opt("lunch-pod").await.unwrap();
        pod.and_then(|pod| pod.status?.phase).as_deref() == Some("Running")
    })
    .await;
    let now = DeleteParams { grace_period_seconds: Some(1), ..DeleteParams::default() };
    world.api::<Pod>().delete("lunch-pod", &now).await.unwrap();
    eventually("it is over", async || {
        world.get::<At>("lunch").await.status.is_some_and(|status| status.phase == Some(Phase::Done))
    })
    .await;
    eventually("the pod is gone", async || world.pods().await.is_empty()).await;
    let status = world.get::<At>("lunch").await.status.unwrap();
    let (ready, reason) = ready(&status);
    assert!(ready == "False" && ["Failed", "PodLost"].contains(&reason.as_str()), "{status:?}");
    operator.stop().await;
}
