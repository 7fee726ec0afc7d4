//! The files under `config`.

use cronjob_operator::api::v1::{ConcurrencyPolicy, CronJob};
use kubewright_cluster::faults::{Faults, Verb};
use operator_kit::{eventually, minutes, needed};

use crate::scene::{DAILY, FIRST, cronjob, end_job, job, jobs, reaches, with_policy, world};

#[test]
fn the_crds_are_those_of_the_types() {
    operator_kit::config!().check_crds(cronjob_operator::crds());
}

#[test]
fn the_crd_can_be_applied_by_the_client() {
    let crd = operator_kit::config!().read("crd/bases/batch.tutorial.kubebuilder.io_cronjobs.yaml");
    assert!(crd.len() < 262_144 / 4, "{}", crd.len());
}

#[test]
fn the_sample_is_that_of_the_source() {
    let sample: CronJob =
        serde_saphyr::from_str(&operator_kit::config!().read("samples/batch_v1_cronjob.yaml")).unwrap();
    assert_eq!(sample.spec.schedule, "*/1 * * * *");
    assert_eq!(sample.spec.starting_deadline_seconds, Some(60));
    assert_eq!(sample.spec.concurrency_policy, Some(ConcurrencyPolicy::Allow));
    let template = sample.spec.job_template.read().unwrap();
    let pod = template.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.containers[0].args.as_ref().unwrap()[2], "date; echo Hello from the Kubernetes cluster");
}

#[tokio::test(start_paused = true)]
async fn the_role_allows_what_is_used_and_no_more() {
    let (world, faults) = (world().await, Faults::new());
    // A lost answer makes it look for the Job by name.
    faults.on(&[Verb::Create], "jobs").lose_answer();
    let operator = world.start(&faults);
    let mut first = with_policy(DAILY, ConcurrencyPolicy::Forbid);
    first.spec.successful_jobs_history_limit = Some(0);
    world.create(first).await;
    let mut allowing = cronjob(DAILY);
    allowing.metadata.name = Some("allowing".into());
    world.create(allowing).await;
    job(&world, FIRST).await;
    end_job(&world, FIRST, true).await;
    eventually("it is trimmed", async || jobs(&world).await == ["allowing-1580378460"]).await;
    reaches(&world, "Ready", "Scheduled").await;
    let mut other = cronjob("tomorrow");
    other.metadata.name = Some("other".into());
    // Twice the same event is a series, which is a patch.
    for _ in 0..2 {
        world.create(other.clone()).await;
        tokio::time::sleep(minutes(1)).await;
        world.delete::<CronJob>("other").await;
    }
    operator.stop().await;

    let mut allowed = operator_kit::config!().allowed();
    // The API server asks for this one itself, in some clusters, and the recorder only for what recurs.
    assert!(allowed.remove("batch.tutorial.kubebuilder.io cronjobs/finalizers update"));
    allowed.remove("events.k8s.io events patch");
    let mut needed = needed(&faults);
    needed.remove("events.k8s.io events patch");
    assert_eq!(needed, allowed);
}
