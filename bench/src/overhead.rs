//! What the runtime adds between an event and the user's code.

use std::{
    convert::Infallible,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use futures::{StreamExt, channel::mpsc};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, client::Body};
use kubewright::{
    log::LogArgs,
    prelude::{Context, Controller, Manager, Outcome as Answer, Reconciler},
    random::Random,
};
use kubewright_apimachinery::clock::SharedClock;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::report::{Limit, Outcome, percentile};

/// How many objects are cached.
const SIZES: [usize; 2] = [100, 100_000];
const WARM_UP: usize = 2_000;
const EVENTS: usize = 20_000;

type Answered = UnsyncBoxBody<Bytes, Infallible>;

/// Both sizes, each in a fresh process of this program.
pub(crate) fn both() -> Result<Vec<Outcome>> {
    let program = std::env::current_exe().context("find this program")?;
    let mut figures = Vec::new();
    for size in SIZES {
        let mut command = Command::new(&program);
        // The log is written as by default, to where it is not read.
        let output = command.args(["--overhead", &size.to_string()]).stderr(Stdio::null()).output();
        let output = output.context("run a measurement of the overhead")?;
        if !output.status.success() {
            bail!("a measurement of the overhead ended with {}", output.status);
        }
        let text = String::from_utf8(output.stdout).context("read a measurement's figures")?;
        let numbers = text.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>();
        figures.push(numbers.with_context(|| format!("read a measurement's figures: {text:?}"))?);
    }
    let [few, many] = &figures[..] else { bail!("two sizes were measured") };
    let [Some(few_median), Some(many_median)] = [few, many].map(|figures| figures.first().copied()) else {
        bail!("a measurement gave no figure")
    };
    Ok(vec![
        Outcome {
            name: "overhead",
            figure: many_median,
            unit: "µs",
            limit: Limit::AtMost(50.0),
            details: format!(
                "with 100 objects {few_median:.1} µs; p99 {:.0} µs, with 100 objects {:.0} µs",
                many[1], few[1]
            ),
            method: "A manager with one controller for ConfigMaps (0.6 KB), whose API server is a script in the same process. An event is on its way \
                     from the moment its bytes are put into the watch's body to the first line of `reconcile`: it is parsed, put \
                     into the cache and its indexes, queued, handed out to a worker, and read from the cache; network and TLS are not in it. \
                     100,000 objects are cached; 20,000 events after 2,000 to warm up, one at a time, of objects drawn by lot; the figure is \
                     the median. Each size has a process of its own, with the log on as by default.",
        },
        Outcome {
            name: "overhead-growth",
            figure: many_median / few_median,
            unit: "times",
            limit: Limit::AtMost(1.25),
            details: format!("{few_median:.1} µs with 100 objects, {many_median:.1} µs with 100,000"),
            method: "The medians of `overhead`, with 100,000 objects by with 100. What is left to it is what the processor's caches no longer hold.",
        },
    ])
}

/// Prints the median and the 99th percentile in microseconds.
pub(crate) async fn measure(clock: SharedClock, size: usize) -> Result<String> {
    LogArgs::default().init()?;
    // On a worker, as the operator's own tasks are.
    let mut spans = tokio::spawn(run(clock, size)).await.context("the measurement panicked")??;
    let [median, slow] = [50, 99].map(|percent| percentile(&mut spans, percent).as_secs_f64() * 1e6);
    Ok(format!("{median} {slow}"))
}

async fn run(clock: SharedClock, size: usize) -> Result<Vec<Duration>> {
    let (watch, events) = mpsc::unbounded();
    let (began, mut begins) = mpsc::unbounded();
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = Manager::new(client(size, events))
        .clock(clock.clone())
        .controller(Controller::new(Told { clock: clock.clone(), began }));
    let manager = tokio::spawn(manager.run_until(async { drop(stopped.await) }));
    for _ in 0..size {
        begins.next().await.context("the manager has ended")?;
    }
    let random = Random::seeded(1);
    let mut spans = Vec::with_capacity(WARM_UP + EVENTS);
    for number in 0..WARM_UP + EVENTS {
        let object = (random.fraction() * size as f64) as usize;
        // The type is first, as from an API server; a `Value` would put the object first, and that has to be read twice.
        let object_now = config_map(object, size + 1 + number);
        let event = Bytes::from(format!("{{\"type\":\"MODIFIED\",\"object\":{object_now}}}\n"));
        let sent = clock.monotonic();
        watch.unbounded_send(event).context("the watch has ended")?;
        let (name, begun) = begins.next().await.context("the manager has ended")?;
        ensure!(name == format!("map-{object}"), "{name} was reconciled instead of map-{object}");
        spans.push(begun.saturating_sub(sent));
        // The worker ends, and all rests.
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    // The receiver may be gone if the manager ended early; its own result says why.
    let _ = stop.send(());
    manager.await.context("the manager panicked")?.context("run the manager")?;
    Ok(spans.split_off(WARM_UP))
}

/// Tells when it is called.
struct Told {
    clock: SharedClock,
    began: mpsc::UnboundedSender<(String, Duration)>,
}

impl Reconciler<ConfigMap> for Told {
    type Error = Infallible;

    async fn reconcile(&self, map: &ConfigMap, _: &Context<ConfigMap>) -> Result<Answer, Infallible> {
        let begun = self.clock.monotonic();
        // It is gone when the measurement is over.
        let _ = self.began.unbounded_send((map.metadata.name.clone().unwrap_or_default(), begun));
        Ok(Answer::done())
    }
}

fn config_map(number: usize, version: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": format!("map-{number}"), "namespace": format!("team-{}", number % 100), "uid": format!("uid-{number}"),
            "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-30T10:00:00Z",
            "labels": {"app": format!("app-{}", number % 1000), "team": format!("team-{}", number % 100)},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "name": format!("app-{}", number % 1000),
                "uid": format!("owner-{}", number % 1000), "controller": true,
            }],
        },
        "data": {"settings": "a line of settings as they are\n".repeat(6), "revision": version.to_string()},
    })
}

/// A client of a script that lists `size` ConfigMaps once, and whose watch then tells `events`.
fn client(size: usize, events: mpsc::UnboundedReceiver<Bytes>) -> Client {
    let events = Arc::new(parking_lot::Mutex::new(Some(events)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let events = if is_watch { events.lock().take() } else { None };
        async move { Ok::<_, Infallible>(Response::new(answer(size, is_watch, events))) }
    });
    Client::new(service, "default")
}

fn answer(size: usize, is_watch: bool, events: Option<mpsc::UnboundedReceiver<Bytes>>) -> Answered {
    match events {
        Some(events) => BodyExt::boxed_unsync(StreamBody::new(events.map(|event| Ok(Frame::data(event))))),
        // A second watch never says anything.
        None if is_watch => BodyExt::boxed_unsync(StreamBody::new(futures::stream::pending())),
        None => {
            let items: Vec<_> = (0..size).map(|number| config_map(number, number + 1)).collect();
            let list = json!({
                "apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": size.to_string()}, "items": items,
            });
            Full::from(list.to_string()).boxed_unsync()
        }
    }
}
