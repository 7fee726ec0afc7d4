//! The conformance tests, and further tests of the same faults that are specific to this operator.

use cronjob_operator::api::v1::CronJob;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kubewright::{
    prelude::*,
    simulation::{
        World,
        conformance::{Invalid, Subject},
        conformance_tests,
    },
};
use kubewright_cluster::faults::Faults;
use serde_json::{Value, json};

use crate::fixtures::{FIRST, cronjob, end_job, env, job, jobs, reaches};

/// A CronJob whose first scheduled time is half an hour after the start: webhooks may keep the user from creating it
/// until then.
struct Lunch;

impl Subject for Lunch {
    type Child = Job;
    type Resource = CronJob;

    const AT_MOST_ONCE: bool = true;
    const CHILDREN: usize = 1;
    const NAME: &'static str = "lunch";
    const REFUSED: &'static str = "JobRefused";

    fn register(manager: Manager) -> Manager {
        cronjob_operator::register(manager)
    }

    fn sample() -> CronJob {
        cronjob("30 10 * * *")
    }

    fn replacement() -> CronJob {
        cronjob("30,50 10 * * *")
    }

    fn is_seen(world: &World) -> bool {
        world.get::<CronJob>(Self::NAME).is_some_and(|lunch| lunch.status.is_some())
    }

    fn is_settled(world: &World) -> bool {
        world.get::<CronJob>(Self::NAME).is_some_and(|lunch| {
            let time: Timestamp = "2020-01-30T10:30:00Z".parse().unwrap();
            // The user may create it again once its time is over: the next one is a day later.
            let is_late = lunch.metadata.creation_timestamp.as_ref().is_some_and(|created| created.0 >= time);
            lunch.status.is_some_and(|status| is_late || status.last_schedule_time.is_some())
        })
    }
}

impl Invalid for Lunch {
    const REASON: &'static str = "InvalidTemplate";

    fn invalid() -> CronJob {
        let mut wrong = Self::sample();
        wrong.spec.job_template = serde_json::from_value(json!({"spec": 5})).unwrap();
        wrong
    }

    fn valid_patch() -> Value {
        json!({"spec": Self::sample().spec})
    }
}

conformance_tests!(Lunch);

/// The webhook refuses it. Without one, it is reported.
mod invalid {
    use kubewright::simulation::conformance::invalid;

    #[test]
    fn simulation() {
        invalid::<super::Lunch>().without_webhooks().test();
    }
}

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
