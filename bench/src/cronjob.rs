//! CronJobs under load: a schedule missed for ten years, and a thousand CronJobs due in the same minute.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use cronjob_operator::{
    api::v1::{CronJob, CronJobSpec},
    schedule::Schedule,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, api::PostParams};
use kubewright::prelude::Manager;
use kubewright_apimachinery::clock::{Clock, SharedClock, VirtualClock};
use kubewright_apiserver::ApiServer;
use kubewright_cluster::{Cluster, Pods};
use serde_json::json;
use tokio::{sync::oneshot, task::JoinSet};

use crate::{
    creates::client,
    report::{Limit, Outcome, milliseconds, percentile},
    sizes::Sizes,
};

const DECADE: SignedDuration = SignedDuration::from_hours(10 * 8766);

/// Finds the latest missed run of ten years, at many points in time.
pub(crate) fn latest_missed(sizes: &Sizes, clock: &SharedClock) -> Result<Outcome> {
    let start: Timestamp = "2026-01-30T10:00:30Z".parse().context("read a time")?;
    let mut spans = Vec::new();
    for zone in [None, Some("Europe/Berlin")] {
        let schedule = Schedule::parse("*/1 * * * *", zone).context("read the schedule")?;
        for look in 0..sizes.schedule_times {
            // The points have varying hours and minutes, and include daylight saving time.
            let now = start + SignedDuration::from_secs(look * 31_063);
            let begun = clock.monotonic();
            let latest = schedule.latest(now - DECADE, now);
            spans.push(clock.monotonic().saturating_sub(begun));
            let latest = latest.context("a minute was missed")?;
            ensure!(now.duration_since(latest) < SignedDuration::from_secs(60), "{latest} is not the latest at {now}");
        }
    }
    let typical = milliseconds(percentile(&mut spans, 50));
    Ok(Outcome {
        name: "cronjob-latest",
        figure: milliseconds(percentile(&mut spans, 100)),
        unit: "ms",
        limit: Limit::AtMost(1.0),
        details: format!("p50 {:.1} µs", typical * 1000.0),
        method: "`Schedule::latest` of `*/1 * * * *` with ten years since the last run, five million missed minutes, at 1,000 times in UTC and 1,000 in Europe/Berlin. The figure is the maximum.",
    })
}

/// Makes a thousand CronJobs due in the same minute: on an API server alone, then on a whole cluster.
pub(crate) async fn due_at_once(sizes: &Sizes) -> Result<Outcome> {
    let minute: Timestamp = "2026-01-30T10:01:00Z".parse().context("read a time")?;
    let clock = VirtualClock::starting_at(minute - SignedDuration::try_from(sizes.cronjob_head_start)?);
    let api = ApiServer::builder().clock(clock.clone()).build();
    let mut alone = job_spans(&api, sizes, clock, minute).await.context("at the API server alone")?;

    let clock = VirtualClock::starting_at(minute - SignedDuration::try_from(sizes.cronjob_head_start)?);
    let cluster =
        Cluster::builder().clock(clock.clone()).pods(Pods::None).start().await.context("start the cluster")?;
    let mut crowded = job_spans(cluster.api(), sizes, clock, minute).await.context("at the cluster")?;
    cluster.shutdown().await;
    Ok(Outcome {
        name: "cronjob-1000",
        figure: milliseconds(percentile(&mut alone, 100)),
        unit: "ms",
        limit: Limit::AtMost(2000.0),
        details: format!(
            "half of the Jobs after {:.0} ms; all after {:.0} ms when the built-in controllers work on the same cores",
            milliseconds(percentile(&mut alone, 50)),
            milliseconds(percentile(&mut crowded, 100))
        ),
        method: "1,000 CronJobs with `*/1 * * * *` are created 25 s before a minute begins; from the beginning of that minute to the creation of the last of their 1,000 Jobs. The operator connects over \
                 TLS, has a concurrency of 16, and records each run before the next. It shares two cores with an API server \
                 without controllers and, for the second figure, with a cluster whose Job controller creates the pods of the Jobs.",
    })
}

/// Returns how long after the minute each Job was created.
async fn job_spans(
    api: &ApiServer,
    sizes: &Sizes,
    clock: Arc<VirtualClock>,
    minute: Timestamp,
) -> Result<Vec<Duration>> {
    let (count, head_start) = (sizes.cronjobs, sizes.cronjob_head_start);
    let listener = api.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.context("listen")?;
    let client = client(&listener.kubeconfig()).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in cronjob_operator::crds() {
        crds.create(&PostParams::default(), &crd).await.context("create the CRD")?;
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = cronjob_operator::register(Manager::new(client.clone()).clock(clock.clone()));
    let manager = tokio::spawn(manager.run_until(async { drop(stopped.await) }));
    create_all(&client, count).await?;
    ensure!(clock.now() < minute, "creating {count} CronJobs took longer than {head_start:?}");

    let mut feed = api.feed();
    let (mut jobs, mut spans) = (BTreeSet::new(), Vec::with_capacity(count));
    let all = async {
        while jobs.len() < count {
            let change = feed.next().await.context("the feed was too slow")?;
            let name = change.object()["metadata"]["name"].as_str().unwrap_or_default();
            if change.object()["kind"] == "Job" && jobs.insert(name.to_owned()) {
                spans.push(Duration::try_from(clock.now().duration_since(minute)).unwrap_or_default());
            }
        }
        Ok::<_, anyhow::Error>(())
    };
    tokio::time::timeout(head_start + Duration::from_secs(60), all).await.context("not all Jobs came")??;
    // The receiver may be gone if the manager ended early; its own result says why.
    let _ = stop.send(());
    manager.await.context("the manager panicked")?.context("run the manager")?;
    listener.shutdown().await;
    Ok(spans)
}

async fn create_all(client: &Client, count: usize) -> Result<()> {
    const CALLERS: usize = 8;
    let template = json!({"spec": {"template": {"spec": {
        "containers": [{"name": "hello", "image": "busybox", "args": ["true"]}], "restartPolicy": "OnFailure",
    }}}});
    let spec = CronJobSpec {
        schedule: "*/1 * * * *".into(),
        job_template: serde_json::from_value(template).context("make a template")?,
        ..CronJobSpec::default()
    };
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (client, spec) = (client.clone(), spec.clone());
        callers.spawn(async move {
            let cronjobs: Api<CronJob> = Api::namespaced(client, "default");
            for number in (caller..count).step_by(CALLERS) {
                let cronjob = CronJob::new(&format!("bench-{number}"), spec.clone());
                cronjobs.create(&PostParams::default(), &cronjob).await?;
            }
            Ok::<_, kube::Error>(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller.context("a caller panicked")?.context("create a CronJob")?;
    }
    Ok(())
}
