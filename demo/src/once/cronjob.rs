//! The script of CronJob, with the clock advanced to each minute, and of its webhooks.

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api, Error, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, LogParams, PostParams},
};
use kubewright_apimachinery::clock::Clock;
use serde_json::{Value, json};

use super::{edit, has_condition, report::Report, status};
use crate::environment::{CRONJOB_SAMPLE, Environment};

/// The time by which the clock is advanced to test catching up.
const DOWNTIME: SignedDuration = SignedDuration::from_hours(3);

fn manifest(name: &str, command: &str, spec: Value) -> Value {
    let containers = json!([{ "name": "hello", "image": "busybox", "args": ["sh", "-c", command] }]);
    let pod = json!({ "spec": { "containers": containers, "restartPolicy": "OnFailure" } });
    let mut manifest = json!({
        "apiVersion": "batch.tutorial.kubebuilder.io/v1", "kind": "CronJob", "metadata": { "name": name },
        "spec": { "schedule": "* * * * *", "jobTemplate": { "spec": { "template": pod } } },
    });
    if let (Some(whole), Value::Object(more)) = (manifest["spec"].as_object_mut(), spec) {
        whole.extend(more);
    }
    manifest
}

/// Returns the Jobs of a CronJob by name.
async fn jobs(environment: &Environment, cronjob: &DynamicObject) -> Result<Vec<String>> {
    let api: Api<Job> = Api::namespaced(environment.user(), "default");
    let uid = cronjob.uid().unwrap_or_default();
    let mut jobs = api.list(&ListParams::default()).await?.items;
    jobs.retain(|job| job.owner_references().iter().any(|owner| owner.uid == uid));
    Ok(jobs.iter().map(ResourceExt::name_any).collect())
}

/// Returns the name of the Job for a time.
fn job_of(cronjob: &DynamicObject, time: Timestamp) -> String {
    format!("{}-{}", cronjob.name_any(), time.as_second())
}

async fn delete(environment: &Environment, cronjobs: &[&DynamicObject]) -> Result<()> {
    for cronjob in cronjobs {
        let name = cronjob.name_any();
        environment
            .resources(cronjob)?
            .delete(&name, &DeleteParams::default())
            .await
            .with_context(|| format!("delete {name}"))?;
    }
    Ok(())
}

pub(super) async fn runs_and_keeps_its_policies(environment: &Environment, report: &mut Report) -> Result<()> {
    report.title("CronJob: it runs at the next minute, and keeps to its policy at the one after (the clock is moved)");
    let sample = environment.apply(CRONJOB_SAMPLE).await?;
    let forbid = manifest("forbid", "sleep 600", json!({ "concurrencyPolicy": "Forbid" }));
    let forbid = environment.apply(&forbid.to_string()).await?;
    let replace = manifest("replace", "sleep 600", json!({ "concurrencyPolicy": "Replace" }));
    let replace = environment.apply(&replace.to_string()).await?;
    let brief =
        environment.apply(&manifest("brief", "true", json!({ "successfulJobsHistoryLimit": 1 })).to_string()).await?;
    for cronjob in [&sample, &forbid, &replace, &brief] {
        let what = format!("{} tells its next run", cronjob.name_any());
        report
            .until(&what, || async { Ok(!status(environment, cronjob).await?["nextScheduleTime"].is_null()) })
            .await?;
    }

    let first = environment.to_the_next_minute()?;
    report
        .until("the sample's Job has run", || async {
            Ok(status(environment, &sample).await?["lastSuccessfulTime"].is_string())
        })
        .await?;
    let log = job_log(environment, &job_of(&sample, first)).await?;
    report.check("its log says Hello", log.ends_with("Hello from the Kubernetes cluster\n"), || format!("{log:?}"));
    for cronjob in [&forbid, &replace] {
        let what = format!("{} has one Job that runs", cronjob.name_any());
        let expect = [job_of(cronjob, first)];
        report.until(&what, || async { Ok(is_active(&status(environment, cronjob).await?, &expect)) }).await?;
    }
    report
        .until("brief's Job has run", || async {
            Ok(status(environment, &brief).await?["lastSuccessfulTime"].is_string())
        })
        .await?;

    let second = environment.to_the_next_minute()?;
    report
        .until("Forbid: a minute later it is skipped, and reported", || async {
            let status = status(environment, &forbid).await?;
            Ok(has_condition(&status, "Missed", "True", "Skipped") && is_active(&status, &[job_of(&forbid, first)]))
        })
        .await?;
    let expect = [job_of(&replace, second)];
    report
        .until("Replace: the new Job runs, and the old one is gone", || async {
            Ok(is_active(&status(environment, &replace).await?, &expect)
                && jobs(environment, &replace).await? == expect)
        })
        .await?;
    let expect = [job_of(&brief, second)];
    report
        .until("a history of 1 keeps the last Job", || async { Ok(jobs(environment, &brief).await? == expect) })
        .await?;
    let expect = [job_of(&sample, first), job_of(&sample, second)];
    report.until("the sample keeps both", || async { Ok(jobs(environment, &sample).await? == expect) }).await?;
    delete(environment, &[&sample, &forbid, &replace, &brief]).await
}

fn is_active(status: &Value, expect: &[String]) -> bool {
    let active = status["active"].as_array().cloned().unwrap_or_default();
    active.iter().map(|job| job["name"].as_str().unwrap_or_default()).eq(expect)
}

async fn job_log(environment: &Environment, job: &str) -> Result<String> {
    let pods = environment.pods();
    let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
    let pod = pods.list(&of_job).await?.items.into_iter().next().with_context(|| format!("{job} has no pod"))?;
    Ok(pods.logs(&pod.name_any(), &LogParams::default()).await?)
}

pub(super) async fn catches_up(environment: &Environment, report: &mut Report) -> Result<()> {
    report.title("CronJob: suspended for three hours, then catching up with one run (the clock is moved)");
    let asleep = manifest("asleep", "true", json!({ "suspend": true }));
    let asleep = environment.apply(&asleep.to_string()).await?;
    report
        .until("it is suspended", || async {
            Ok(has_condition(&status(environment, &asleep).await?, "Ready", "True", "Suspended"))
        })
        .await?;
    // In the middle of a minute the latest scheduled time stays the same for a while.
    let now = environment.clock().now();
    environment.clock().jump(DOWNTIME + SignedDuration::from_secs(75 - now.as_second() % 60));
    let latest = Timestamp::from_second(environment.clock().now().as_second() / 60 * 60)?;
    let early = jobs(environment, &asleep).await?;
    report.check("nothing has run meanwhile", early.is_empty(), || format!("{early:?}"));
    edit(environment, &asleep, json!({ "spec": { "suspend": false } })).await?;
    report
        .until("the latest time is made up for", || async {
            Ok(status(environment, &asleep).await?["lastSuccessfulTime"].is_string())
        })
        .await?;
    let made = jobs(environment, &asleep).await?;
    report.check("and only that one, of 180", made == [job_of(&asleep, latest)], || format!("{made:?}"));
    delete(environment, &[&asleep]).await
}

pub(super) async fn is_refused(environment: &Environment, report: &mut Report) -> Result<()> {
    report.title("CronJob: bad ones are refused by the webhook, all causes in one answer");
    let manifest = manifest(&"x".repeat(53), "true", json!({ "schedule": "* * * * tomorrow" }));
    let bad: DynamicObject = serde_json::from_value(manifest)?;
    let cronjobs = environment.resources(&bad)?;
    match cronjobs.create(&PostParams::default(), &bad).await {
        Err(Error::Api(refusal)) => {
            let causes = refusal.details.as_ref().map(|details| details.causes.clone()).unwrap_or_default();
            report
                .check("it is Invalid", refusal.reason == "Invalid" && refusal.code == 422, || refusal.message.clone());
            for (what, field) in [("a name of 53 characters", "metadata.name"), ("the schedule", "spec.schedule")] {
                let reported = causes.iter().any(|cause| cause.field == field);
                report.check(&format!("one cause is {what}"), reported, || refusal.message.clone());
            }
        }
        Err(error) => return Err(error).context("create a bad CronJob"),
        Ok(_) => report.check("it is refused", false, || "it was created".into()),
    }
    let longest = "x".repeat(52);
    let good = environment.apply(&self::manifest(&longest, "true", json!({})).to_string()).await?;
    let spec = &good.data["spec"];
    let defaults = (&spec["concurrencyPolicy"], &spec["suspend"], &spec["successfulJobsHistoryLimit"]);
    report.check(
        "a name of 52 characters is taken, and the defaults are set",
        defaults == (&json!("Allow"), &json!(false), &json!(3)),
        || spec.to_string(),
    );
    delete(environment, &[&good]).await
}
