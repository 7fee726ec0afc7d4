//! The conformance tests, and further tests of the same faults that are specific to this operator.

use cronjob_operator::api::v1::CronJob;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kubewright_cluster::faults::Faults;
use operator_kit::{Invalid, Subject, TestEnv, eventually};
use serde_json::{Value, json};

use crate::fixtures::{DAILY, FIRST, cronjob, delete_job, end_job, env, job, jobs, reaches, status};

/// A CronJob whose first scheduled time is a minute after the start.
struct Lunch;

impl Subject for Lunch {
    type Child = Job;
    type Resource = CronJob;

    const EVENTS: usize = 1;
    const CHILDREN: usize = 1;
    const NAME: &'static str = "lunch";
    const AT_MOST_ONCE: bool = true;
    const HAS_RECORD: bool = true;
    const REFUSED: &'static str = "JobRefused";
    const CHILD_EVENTS: usize = 2;
    // Ready, Job, record, finalizer, started, ended.
    const WRITES: usize = 6;

    async fn env() -> TestEnv {
        env().await
    }

    fn sample() -> CronJob {
        cronjob(DAILY)
    }

    fn replacement() -> CronJob {
        cronjob("1,6 10 * * *")
    }

    async fn seen(env: &TestEnv) {
        reaches(env, "Ready", "Scheduled").await;
    }

    async fn settled(env: &TestEnv) {
        let reported = reaches(env, "Missed", "Started").await;
        let name = format!("lunch-{}", reported.last_schedule_time.unwrap().0.as_second());
        assert!(job(env, &name).await.finalizers().is_empty());
        eventually("it is reported", async || {
            status(env).await.active.iter().any(|it| it.name.as_ref() == Some(&name))
        })
        .await;
    }

    async fn finish(env: &TestEnv) {
        for name in jobs(env).await {
            end_job(env, &name, true).await;
        }
        eventually("its end is reported", async || status(env).await.last_successful_time.is_some()).await;
    }

    async fn delete_child(env: &TestEnv) -> usize {
        delete_job(env, FIRST).await;
        eventually("its end is reported", async || status(env).await.active.is_empty()).await;
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

    fn valid_patch() -> Value {
        json!({"spec": cronjob(DAILY).spec})
    }
}

operator_kit::conformance_tests!(Lunch, invalid);

#[tokio::test(start_paused = true)]
async fn jobs_of_a_former_cronjob_are_neither_counted_nor_deleted() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    let mut brief = cronjob("* * * * *");
    brief.spec.successful_jobs_history_limit = Some(0);
    env.create(brief.clone()).await;
    job(&env, FIRST).await;
    // A finalizer holds the old Job.
    env.edit::<Job>(FIRST, json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    env.delete::<CronJob>("lunch").await;
    env.create(brief).await;
    end_job(&env, FIRST, true).await;
    let reported = reaches(&env, "Missed", "Started").await;
    assert!(reported.active.iter().all(|job| job.name.as_deref() != Some(FIRST)), "{reported:?}");
    assert_eq!(reported.last_successful_time, None);
    assert!(jobs(&env).await.contains(&FIRST.to_owned()));
    operator.stop().await;
}
