//! The latency that the runtime adds between an event and the user's code.

use std::{
    convert::Infallible,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use futures::{StreamExt, channel::mpsc};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, client::Body};
use kube_runtime::{controller::Action, watcher};
use kubewright::{
    log::LogArgs,
    prelude::{Action as Answer, Context, Controller, Manager, Reconciler},
    random::Random,
};
use kubewright_apimachinery::clock::SharedClock;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{
    report::{Limit, Outcome, percentile},
    sizes::Sizes,
};

/// The number of times that the benchmark yields to all ready tasks between two events.
const TURNS: usize = 20;

type Answered = UnsyncBoxBody<Bytes, Infallible>;

/// The runtime that calls the reconciler.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Runtime {
    /// A Kubewright manager
    Kubewright,
    /// kube-runtime's `Controller`
    KubeRuntime,
}

/// The results in microseconds.
struct Figures {
    median: f64,
    slow: f64,
    rested: f64,
}

/// Measures both sizes with both runtimes, each in fresh processes of this program.
pub(crate) fn both(sizes: &Sizes) -> Result<Vec<Outcome>> {
    let [few, many] = of(Runtime::Kubewright, sizes.overhead_processes, sizes)?;
    // The peer takes longer, so it is measured in one process.
    let [peer_few, peer_many] = of(Runtime::KubeRuntime, 1, sizes)?;
    let growth = many.median / few.median;
    Ok(vec![
        Outcome {
            name: "overhead",
            figure: many.median,
            unit: "µs",
            limit: Limit::AtMost(50.0),
            details: format!(
                "with 100 objects {:.1} µs; p99 {:.0} µs, with 100 objects {:.0} µs; after a rest of a millisecond {:.1} µs, with \
                 100 objects {:.1} µs; kube-runtime {:.1} µs, with 100 objects {:.1} µs, after a rest {:.1} and {:.1} µs",
                few.median,
                many.slow,
                few.slow,
                many.rested,
                few.rested,
                peer_many.median,
                peer_few.median,
                peer_many.rested,
                peer_few.rested,
            ),
            method: "A manager with one controller for ConfigMaps (0.6 KB), whose API server is a script in the same process. The time is measured from writing an event into the body of \
                     the watch to the first line of `reconcile`: the event is parsed, stored in the cache and its indexes, queued, \
                     given to a worker, and read from the cache. Network and TLS are not included. 100,000 objects are cached; \
                     20,000 events after 2,000 for warming up, of objects chosen at random, each sent as soon as the previous run \
                     has ended. The figure is the median. Threads of the lowest priority keep the processors from idle states, as \
                     an operator with more work would; after a rest without them it takes longer. kube-runtime's `Controller` runs \
                     with the same script, once. Each size is measured in three processes, alternating with the other size, with \
                     default logging; the process with the middle median counts.",
        },
        Outcome {
            name: "overhead-growth",
            figure: growth,
            unit: "times",
            limit: Limit::AtMost(1.25),
            details: format!("{:.1} µs with 100 objects, {:.1} µs with 100,000", few.median, many.median),
            method: "The median of `overhead` with 100,000 objects, divided by that with 100. The rest of the growth are cache \
                     misses of the processor.",
        },
    ])
}

/// Returns the median over several processes for each size. The sizes alternate, so that other load on the machine
/// affects both.
fn of(runtime: Runtime, rounds: usize, sizes: &Sizes) -> Result<[Figures; 2]> {
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        few.push(in_a_process(runtime, sizes.overhead_objects[0], sizes)?);
        many.push(in_a_process(runtime, sizes.overhead_objects[1], sizes)?);
    }
    Ok([few, many].map(|mut figures| {
        figures.sort_by(|one, other| one.median.total_cmp(&other.median));
        figures.swap_remove(rounds / 2)
    }))
}

fn in_a_process(runtime: Runtime, size: usize, sizes: &Sizes) -> Result<Figures> {
    let program = std::env::current_exe().context("find this program")?;
    let runtime = runtime.to_possible_value().context("a runtime has a name")?;
    let mut command = Command::new(&program);
    command.args(["--overhead", &size.to_string(), "--by", runtime.get_name()]).args(sizes.flags());
    // The log is written at the default level, and discarded.
    let output = command.stderr(Stdio::null()).output().context("run a measurement of the overhead")?;
    if !output.status.success() {
        bail!("a measurement of the overhead ended with {}", output.status);
    }
    let text = String::from_utf8(output.stdout).context("read a measurement's figures")?;
    let numbers = text.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>();
    match numbers.with_context(|| format!("read a measurement's figures: {text:?}"))?[..] {
        [median, slow, rested] => Ok(Figures { median, slow, rested }),
        _ => bail!("a measurement gave other figures than asked for: {text:?}"),
    }
}

/// Prints the median and the 99th percentile of busy latencies and the median of rested ones, in microseconds.
pub(crate) async fn measure(
    clock: SharedClock,
    runtime: Runtime,
    size: usize,
    sizes: &'static Sizes,
) -> Result<String> {
    LogArgs::default().init()?;
    // Runs on a worker thread, like the operator's own tasks.
    let measured = tokio::spawn(async move {
        let (watch, events) = mpsc::unbounded();
        let (began, mut begins) = mpsc::unbounded();
        let told = Told { clock: clock.clone(), began };
        let (stop, stopped) = oneshot::channel::<()>();
        let operator = tokio::spawn(operate(runtime, client(size, events), told, stopped));
        for _ in 0..size {
            begins.next().await.context("the operator has ended")?;
        }
        let mut script = Script { clock, watch, begins, random: Random::seeded(1), size, version: size };
        script.play(sizes.overhead_warm_up, Duration::ZERO).await?;
        let awake = Awake::keep()?;
        let busy = script.play(sizes.overhead_busy, Duration::ZERO).await?;
        drop(awake);
        let rested = script.play(sizes.overhead_rested, Duration::from_micros(200)).await?;
        // The receiver may be gone if the operator ended early; its own result says why.
        let _ = stop.send(());
        operator.await.context("the operator panicked")??;
        anyhow::Ok((busy, rested))
    });
    let (mut busy, mut rested) = measured.await.context("the measurement panicked")??;
    let micros = |spans: &mut Vec<Duration>, percent| percentile(spans, percent).as_secs_f64() * 1e6;
    Ok(format!("{} {} {}", micros(&mut busy, 50), micros(&mut busy, 99), micros(&mut rested, 50)))
}

/// Runs the operator until it is stopped.
async fn operate(runtime: Runtime, client: Client, told: Told, stop: oneshot::Receiver<()>) -> Result<()> {
    match runtime {
        Runtime::Kubewright => {
            let manager = Manager::new(client).clock(told.clock.clone()).controller(Controller::new(told));
            manager.run_until(async { drop(stop.await) }).await.context("run the manager")
        }
        Runtime::KubeRuntime => {
            let reconcile = |map: Arc<ConfigMap>, told: Arc<Told>| async move {
                told.tell(&map);
                Ok::<_, Infallible>(Action::await_change())
            };
            let controller = kube_runtime::Controller::new(Api::<ConfigMap>::all(client), watcher::Config::default());
            let controller = controller.graceful_shutdown_on(async { drop(stop.await) });
            let runs = controller.run(reconcile, |_, _, _| Action::await_change(), Arc::new(told));
            runs.for_each(|_| std::future::ready(())).await;
            Ok(())
        }
    }
}

/// The events that the API server sends, and the calls that follow.
struct Script {
    clock: SharedClock,
    watch: mpsc::UnboundedSender<Bytes>,
    begins: mpsc::UnboundedReceiver<(String, Duration)>,
    random: Random,
    size: usize,
    version: usize,
}

impl Script {
    /// Sends events one at a time, with a pause before each, and returns the latency of each.
    async fn play(&mut self, events: usize, rest: Duration) -> Result<Vec<Duration>> {
        let mut spans = Vec::with_capacity(events);
        for _ in 0..events {
            // Lets the previous reconcile complete.
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            if !rest.is_zero() {
                tokio::time::sleep(rest).await;
            }
            let object = (self.random.fraction() * self.size as f64) as usize;
            self.version += 1;
            // The type is the first field, as an API server writes it. A `Value` would put the object first, and the
            // event would have to be parsed twice.
            let object_now = config_map(object, self.version);
            let event = Bytes::from(format!("{{\"type\":\"MODIFIED\",\"object\":{object_now}}}\n"));
            let sent = self.clock.monotonic();
            self.watch.unbounded_send(event).context("the watch has ended")?;
            let (name, begun) = self.begins.next().await.context("the operator has ended")?;
            ensure!(name == format!("map-{object}"), "{name} was reconciled instead of map-{object}");
            spans.push(begun.saturating_sub(sent));
        }
        Ok(spans)
    }
}

/// Keeps the processors awake with busy threads of the lowest priority. Waking a sleeping processor takes the host of a
/// virtual machine longer than everything that is measured, and only happens because so little is running.
struct Awake(Arc<AtomicBool>);

impl Awake {
    fn keep() -> Result<Self> {
        let awake = Self(Arc::new(AtomicBool::new(true)));
        for _ in 0..thread::available_parallelism().context("count the processors")?.get() {
            let stays = awake.0.clone();
            thread::spawn(move || {
                // Applies to this thread only. Where it isn't possible, the measured latencies are larger.
                _ = rustix::process::nice(19);
                while stays.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// A reconciler that reports each call.
struct Told {
    clock: SharedClock,
    began: mpsc::UnboundedSender<(String, Duration)>,
}

impl Told {
    fn tell(&self, map: &ConfigMap) {
        let begun = self.clock.monotonic();
        // The receiver is gone once the measurement is over.
        let _ = self.began.unbounded_send((map.metadata.name.clone().unwrap_or_default(), begun));
    }
}

impl Reconciler<ConfigMap> for Told {
    type Error = Infallible;

    async fn reconcile(&self, map: &ConfigMap, _: &Context<ConfigMap>) -> Result<Answer, Infallible> {
        self.tell(map);
        Ok(Answer::await_change())
    }
}

fn config_map(number: usize, version: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": format!("map-{number}"), "namespace": format!("team-{}", number % 100), "uid": uid(1, number),
            "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-30T10:00:00Z",
            "labels": {"app": format!("app-{}", number % 1000), "team": format!("team-{}", number % 100)},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "name": format!("app-{}", number % 1000),
                "uid": uid(2, number % 1000), "controller": true,
            }],
        },
        "data": {"settings": "a line of settings as they are\n".repeat(6), "revision": version.to_string()},
    })
}

fn uid(kind: usize, number: usize) -> String {
    format!("{kind:08x}-5a1d-4c3b-8e2f-{number:012x}")
}

/// Creates a client of a script that lists `size` ConfigMaps once, and whose watch then sends `events`.
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
        // A second watch never sends an event.
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
