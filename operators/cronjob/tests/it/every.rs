//! The rows that hold for every operator, and what they show of this one beyond the common.

use cronjob_operator::api::v1::CronJob;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kubewright_cluster::faults::Faults;
use operator_kit::{Invalid, Subject, World, eventually};
use serde_json::{Value, json};

use crate::scene::{DAILY, FIRST, cronjob, delete_job, end_job, job, jobs, reaches, status, world};

/// A CronJob whose first time comes a minute after the beginning.
struct Lunch;

impl Subject for Lunch {
    type Child = Job;
    type Resource = CronJob;

    const EVENTS: usize = 1;
    const MADE: usize = 1;
    const NAME: &'static str = "lunch";
    const ONCE: bool = true;
    const RECORDS: bool = true;
    const REFUSED: &'static str = "JobRefused";
    const WATCHED: usize = 2;
    // Ready, Job, record, finalizer, started, ended.
    const WRITES: usize = 6;

    async fn world() -> World {
        world().await
    }

    fn sample() -> CronJob {
        cronjob(DAILY)
    }

    fn again() -> CronJob {
        cronjob("1,6 10 * * *")
    }

    fn lie() -> Value {
        json!({"lastScheduleTime": "2040-01-01T00:00:00Z"})
    }

    async fn seen(world: &World) {
        reaches(world, "Ready", "Scheduled").await;
    }

    async fn settled(world: &World) {
        let told = reaches(world, "Missed", "Started").await;
        let name = format!("lunch-{}", told.last_schedule_time.unwrap().0.as_second());
        assert!(job(world, &name).await.finalizers().is_empty());
        eventually("it is told", async || status(world).await.active.iter().any(|it| it.name.as_ref() == Some(&name)))
            .await;
    }

    async fn finish(world: &World) {
        for name in jobs(world).await {
            end_job(world, &name, true).await;
        }
        eventually("its end is told", async || status(world).await.last_successful_time.is_some()).await;
    }

    async fn disturb(world: &World) -> usize {
        delete_job(world, FIRST).await;
        eventually("its end is told", async || status(world).await.active.is_empty()).await;
        0
    }
}

impl Invalid for Lunch {
    const REASON: &'static str = "InvalidTemplate";

    fn invalid() -> CronJob {
        let mut wrong = cronjob(DAILY);
        wrong.spec.job_template = serde_json::from_value(json!({"spec": 5})).unwrap();
        wrong
    }

    fn mend() -> Value {
        json!({"spec": cronjob(DAILY).spec})
    }
}

operator_kit::rows!(Lunch, invalid);

#[tokio::test(start_paused = true)]
async fn row_08_the_jobs_of_an_earlier_one_are_neither_counted_nor_deleted() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let mut brief = cronjob("* * * * *");
    brief.spec.successful_jobs_history_limit = Some(0);
    world.create(brief.clone()).await;
    job(&world, FIRST).await;
    // Something holds the old Job.
    world.edit::<Job>(FIRST, json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    world.delete::<CronJob>("lunch").await;
    world.create(brief).await;
    end_job(&world, FIRST, true).await;
    let told = reaches(&world, "Missed", "Started").await;
    assert!(told.active.iter().all(|job| job.name.as_deref() != Some(FIRST)), "{told:?}");
    assert_eq!(told.last_successful_time, None);
    assert!(jobs(&world).await.contains(&FIRST.to_owned()));
    operator.stop().await;
}
