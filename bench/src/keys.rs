//! A million keys, and fifty thousand events a second: whether the cache, the queue and the workers keep up, in memory
//! that doesn't grow.

use std::{
    convert::Infallible,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures::{SinkExt, StreamExt, channel::mpsc};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, Resource, api::ObjectMeta, client::Body};
use kubewright::{
    prelude::{Action, Context, Controller, Manager, Reconciler},
    random::Random,
};
use kubewright_apimachinery::clock::SharedClock;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{
    process,
    report::{Limit, Outcome},
    sizes::Sizes,
};

/// The interval at which events are sent.
const STEP: Duration = Duration::from_millis(5);
/// The number of concurrent reconciles.
const WORKERS: usize = 4;
/// The timeout for the first reconcile of every key, and for the last one after the events.
const PATIENCE: Duration = Duration::from_secs(600);

/// The fields that the reconciler reads.
#[derive(Clone, Debug, Deserialize, Serialize, Resource)]
#[resource(inherit = "ConfigMap")]
struct Named {
    #[serde(with = "kubewright::view::without_annotations")]
    metadata: ObjectMeta,
}

/// Measures in a fresh process of this program.
pub(crate) fn held(sizes: &Sizes) -> Result<Vec<Outcome>> {
    let program = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(program);
    command.arg("--many-keys").args(sizes.flags()).stderr(Stdio::inherit());
    let output = command.output().context("run the measurement of many keys")?;
    ensure!(output.status.success(), "the measurement of many keys ended with {}", output.status);
    let text = String::from_utf8(output.stdout).context("read the figures of many keys")?;
    let numbers = text.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>();
    let [rate, runs, lag, early, late, cpu] = numbers.with_context(|| format!("read the figures {text:?}"))?[..] else {
        anyhow::bail!("the measurement gave other figures than asked for: {text:?}")
    };
    Ok(vec![
        Outcome {
            name: "many-keys",
            figure: rate,
            unit: "events/s",
            limit: Limit::AtLeast(0.99 * sizes.key_events as f64),
            details: format!(
                "{runs:.0} reconciles a second; the newest reconciled event was at most {lag:.0} ms old in the second half; {cpu:.2} processors"
            ),
            method: "A manager with one controller for ConfigMaps (a view of the metadata, four workers), whose API server is a script in the same process: \
                     1,000,000 of them in 1,000 namespaces, each reconciled once; then 50,000 events a second for a minute, of objects chosen at random, in pieces of \
                     5 ms. A script that can't send because the events before are unread falls behind. The figure is the number of events from the first one until all \
                     have been reconciled, by second. The script's own work is part of the processors' time.",
        },
        Outcome {
            name: "many-keys-memory",
            figure: late / early,
            unit: "times",
            limit: Limit::AtMost(1.05),
            details: format!("{early:.0} MiB resident after a quarter of the time, {late:.0} MiB at its end"),
            method: "The resident memory of that process at the end of the events, divided by that after a quarter of their time.",
        },
    ])
}

/// What the reconciler has seen.
#[derive(Default)]
struct Seen {
    runs: AtomicU64,
    newest: AtomicU64,
}

struct Counts(Arc<Seen>);

impl Reconciler<Named> for Counts {
    type Error = Infallible;

    async fn reconcile(&self, object: &Named, _: &Context<Named>) -> Result<Action, Infallible> {
        let version = object.metadata.resource_version.as_ref().and_then(|version| version.parse().ok());
        self.0.newest.fetch_max(version.unwrap_or_default(), Ordering::Relaxed);
        self.0.runs.fetch_add(1, Ordering::Relaxed);
        Ok(Action::await_change())
    }
}

/// Prints events and reconciles by second, the lag in milliseconds, the memory after a quarter and at the end, and the
/// processors that were used.
pub(crate) async fn measure(clock: SharedClock, sizes: &'static Sizes) -> Result<String> {
    let (watch, events) = mpsc::channel(16);
    let (seen, (stop, stopped)) = (Arc::<Seen>::default(), oneshot::channel::<()>());
    let controller = Controller::<Named>::new(Counts(seen.clone())).name("keys").concurrency(WORKERS);
    let manager = Manager::new(client(sizes, events)).clock(clock.clone()).controller(controller);
    let manager = tokio::spawn(manager.run_until(async { drop(stopped.await) }));
    let all = async {
        while seen.runs.load(Ordering::Relaxed) < sizes.keys as u64 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all).await.context("not every key was reconciled")?;
    let figures = tokio::spawn(play(clock, seen, watch, sizes)).await.context("the script panicked")??;
    // The receiver may be gone if the manager ended early; its own result says why.
    let _ = stop.send(());
    manager.await.context("the manager panicked")?.context("run the manager")?;
    Ok(figures)
}

async fn play(
    clock: SharedClock,
    seen: Arc<Seen>,
    mut watch: mpsc::Sender<Bytes>,
    sizes: &'static Sizes,
) -> Result<String> {
    let (random, total) = (Random::seeded(1), sizes.key_events * sizes.keys_busy.as_secs() as usize);
    let (mut sent, mut lag, mut early) = (0, Duration::ZERO, None);
    let (runs, cpu, begun) = (seen.runs.load(Ordering::Relaxed), own_cpu()?, clock.monotonic());
    let by_event = sizes.keys_busy.div_f64(total as f64);
    while sent < total {
        tokio::time::sleep(STEP).await;
        let passed = clock.monotonic().saturating_sub(begun);
        let due = total.min((passed.as_secs_f64() / by_event.as_secs_f64()) as usize);
        let mut piece = Vec::new();
        // Pieces of a bounded size: a script that is late doesn't send everything at once.
        let until = due.min(sent + sizes.key_events / 10);
        while sent < until {
            sent += 1;
            let object = (random.fraction() * sizes.keys as f64) as usize;
            piece.extend_from_slice(b"{\"type\":\"MODIFIED\",\"object\":");
            config_map(object, sizes.keys + sent, sizes, &mut piece);
            piece.extend_from_slice(b"}\n");
        }
        watch.send(Bytes::from(piece)).await.context("the watch has ended")?;
        if early.is_none() && passed * 4 > sizes.keys_busy {
            early = Some(resident()?);
        }
        if passed * 2 > sizes.keys_busy {
            let newest = seen.newest.load(Ordering::Relaxed) as usize;
            // How long ago the event after the newest one was due.
            lag = lag.max(passed.saturating_sub(by_event.mul_f64(newest.saturating_sub(sizes.keys) as f64)));
        }
    }
    let late = resident()?;
    let all = async {
        while (seen.newest.load(Ordering::Relaxed) as usize) < sizes.keys + total {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all).await.context("not every event was reconciled")?;
    let took = clock.monotonic().saturating_sub(begun).as_secs_f64();
    let runs = (seen.runs.load(Ordering::Relaxed) - runs) as f64;
    let (lag, cpu) = (lag.as_secs_f64() * 1000.0, (own_cpu()? - cpu) / took);
    Ok(format!("{} {} {lag} {} {late} {cpu}", total as f64 / took, runs / took, early.unwrap_or(late)))
}

fn resident() -> Result<f64> {
    process::mebibytes("/proc/self/status", "VmRSS:")
}

/// Returns the CPU time of this process in seconds.
fn own_cpu() -> Result<f64> {
    process::cpu_seconds("/proc/self/stat")
}

/// Writes an object as an API server does: the names first.
fn config_map(number: usize, version: usize, sizes: &Sizes, out: &mut Vec<u8>) {
    let namespace = number % sizes.key_namespaces;
    out.extend_from_slice(
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"map-{number}","namespace":"team-{namespace}","uid":"00000001-5a1d-4c3b-8e2f-{number:012x}","resourceVersion":"{version}","creationTimestamp":"2026-01-30T10:00:00Z","labels":{{"app":"app-{}"}}}},"data":{{"revision":"{version}"}}}}"#,
            number % 1000
        )
        .as_bytes(),
    );
}

/// Creates a client of a script that lists the objects in pages, and whose first watch then sends `events`.
fn client(sizes: &'static Sizes, events: mpsc::Receiver<Bytes>) -> Client {
    let events = Arc::new(parking_lot::Mutex::new(Some(events)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.contains("watch=true");
        let events = if is_watch { events.lock().take() } else { None };
        let body: UnsyncBoxBody<Bytes, Infallible> = match events {
            Some(events) => StreamBody::new(events.map(|event| Ok(Frame::data(event)))).boxed_unsync(),
            None if is_watch => StreamBody::new(futures::stream::pending()).boxed_unsync(),
            None => Full::from(page(query, sizes)).boxed_unsync(),
        };
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    Client::new(service, "default")
}

fn page(query: &str, sizes: &Sizes) -> Vec<u8> {
    let parameter = |name: &str| {
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse::<usize>().ok())
    };
    let from = parameter("continue").unwrap_or(0);
    let to = sizes.keys.min(from.saturating_add(parameter("limit").unwrap_or(sizes.keys)));
    let next = if to < sizes.keys { to.to_string() } else { String::new() };
    let mut text = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMapList","metadata":{{"resourceVersion":"{}","continue":"{next}"}},"items":["#,
        sizes.keys
    )
    .into_bytes();
    for number in from..to {
        if number > from {
            text.push(b',');
        }
        config_map(number, number + 1, sizes, &mut text);
    }
    text.extend_from_slice(b"]}");
    text
}
