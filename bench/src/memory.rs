//! The memory of a cached pod, compared with kube-runtime's store.
//!
//! Each result is the growth of the resident memory of a fresh process during the first list, divided by the number of
//! pods. It includes the allocator's overhead and whatever a list leaves behind. The API server is a function in the
//! same process that generates pages of pods on request, and keeps none.

use std::{convert::Infallible, path::Path, process::Command, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use futures::{StreamExt, stream};
use http::{HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Bytes, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{Api, Client, Resource, api::ObjectMeta};
use kube_runtime::{WatchStreamExt, reflector, watcher};
use kubewright::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, sync::Notify, task::JoinSet};

use crate::{
    go::{each, median},
    report::{Limit, Outcome},
    sizes::Sizes,
};

/// A running pod, 2.9 KB as compact JSON. The parts that differ from pod to pod are in braces.
const POD: &str = include_str!("pod.json");
/// The number of pods of a ReplicaSet, and of a namespace.
const PER_OWNER: usize = 10;
const PER_NAMESPACE: usize = 1000;

/// The cache to measure.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Store {
    /// Kubewright's cache, with whole pods
    Full,
    /// Kubewright's cache, with a view of the pods
    View,
    /// kube-runtime's reflector
    Peer,
    /// kube-runtime's reflector, with managed fields removed
    PeerStripped,
}

/// A view of a pod: name, labels, owner and phase.
#[derive(Clone, Debug, Deserialize, Serialize, Resource)]
#[resource(inherit = "Pod")]
struct PodView {
    #[serde(with = "kubewright::view::without_annotations")]
    metadata: ObjectMeta,
    status: Option<PodPhase>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct PodPhase {
    phase: Option<String>,
}

/// Measures the informer of a controller-runtime cache, in bytes for each pod: right after the list, and after Go has
/// given back the memory that it can spare. The pods come over HTTP, since the peer is another program.
pub(crate) async fn beside_go(peer: &Path, sizes: &Sizes) -> Result<Vec<Outcome>> {
    let count = sizes.cached_pods;
    let (ours, mut theirs) = (cost(Store::Full, sizes)?, Vec::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.context("listen for the peer")?;
    let address = listener.local_addr().context("listen for the peer")?;
    let serving = tokio::spawn(serve(listener, count));
    for _ in 0..sizes.rounds {
        let mut command = tokio::process::Command::new(peer);
        // The server knows lists and watches only.
        command.args(["--server", &format!("http://{address}")]).env("KUBE_FEATURE_WatchListClient", "false");
        let output = command.kill_on_drop(true).output().await.context("run the peer")?;
        ensure!(output.status.success(), "the peer failed: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).context("read the peer's figures")?;
        let numbers = text.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>();
        match numbers.with_context(|| format!("read the peer's figures: {text:?}"))?[..] {
            [pods, filled, spared] if pods as usize == count => theirs.push((filled / pods, spared / pods)),
            _ => bail!("the peer printed {text:?}"),
        }
    }
    serving.abort();
    let spared = median(&theirs, |(_, spared)| *spared);
    Ok(vec![Outcome {
        name: "cached-pod-go",
        figure: ours / spared,
        unit: "times",
        limit: Limit::AtMost(0.10),
        details: format!(
            "{ours:.0} B by pod; controller-runtime's informer {spared:.0} B, {:.0} B right after the list; rounds {}",
            median(&theirs, |(filled, _)| *filled),
            each(&theirs, |(_, spared)| *spared),
        ),
        method: "The pods of `cached-pod`, listed by a cache of controller-runtime 0.25 with a transform that drops managed fields \
                 (`bench/peers/controller-runtime/cached-go`), over HTTP; three times. The figure is the growth of the resident memory of Kubewright's \
                 process divided by the median of the peer's, after it has given back to the operating system what it can spare.",
    }])
}

/// Serves the pods by HTTP/1.1 and HTTP/2.
async fn serve(listener: TcpListener, count: usize) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| discover(request, count));
            // Errors here make the peer fail, and are reported there.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Answers as [`answer`], and the discovery of the core group.
async fn discover(
    request: Request<Incoming>,
    count: usize,
) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
    let discovery = match request.uri().path() {
        "/api" => Some(r#"{"kind":"APIVersions","apiVersion":"v1","versions":["v1"]}"#),
        "/apis" => Some(r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[]}"#),
        "/api/v1" => Some(
            r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list","watch"]}]}"#,
        ),
        _ => None,
    };
    let mut response = match discovery {
        Some(text) => Response::new(Full::from(text).boxed_unsync()),
        None => answer(request, count).await?,
    };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Fills one store, and returns the memory of each pod in bytes.
pub(crate) async fn fill(store: Store, sizes: &Sizes) -> Result<usize> {
    let count = sizes.cached_pods;
    let client = Client::new(tower::service_fn(move |request| answer(request, count)), "default");
    let before = resident()?;
    let kept = match store {
        Store::Full => run_manager::<Pod>(client).await?,
        Store::View => run_manager::<PodView>(client).await?,
        Store::Peer => reflect(client, false).await?,
        Store::PeerStripped => reflect(client, true).await?,
    };
    ensure!(kept.0 == count, "{} pods of {count} are there", kept.0);
    Ok(kept.1.saturating_sub(before) / count)
}

/// Measures all stores, each in a separate process.
pub(crate) fn of_a_cached_pod(sizes: &Sizes) -> Result<Vec<Outcome>> {
    let [full, view, peer, stripped] =
        [Store::Full, Store::View, Store::Peer, Store::PeerStripped].map(|store| cost(store, sizes));
    let (full, view, peer, stripped) = (full?, view?, peer?, stripped?);
    let details = format!("kube-runtime's store: {peer:.0} B, {stripped:.0} B without managed fields");
    let outcome = |name, figure, limit, method| Outcome {
        name,
        figure,
        unit: "B",
        limit: Limit::AtMost(limit),
        details: details.clone(),
        method,
    };
    Ok(vec![
        outcome(
            "cached-pod",
            full,
            3000.0,
            "100,000 pods of 2.9 KB (compact JSON, managed fields included) of 10,000 ReplicaSets in 100 namespaces, listed by a \
             manager whose controller reads `Pod`. The figure is the growth of the process's resident memory, by pod. Each store is filled in a process \
             with one worker thread. With two it varies by up to a hundred bytes, and a view goes beyond its limit in some runs: for each \
             thread that happens to read a page of the list, the allocator keeps megabytes back, however many pods there are.",
        ),
        outcome(
            "cached-pod-view",
            view,
            500.0,
            "As cached-pod, with a controller that reads a view: metadata without annotations, and the phase.",
        ),
    ])
}

fn cost(store: Store, sizes: &Sizes) -> Result<f64> {
    let program = std::env::current_exe().context("find this program")?;
    let value = store.to_possible_value().context("a store has a name")?;
    let mut command = Command::new(&program);
    command.args(["--cache-pods", value.get_name()]).args(sizes.flags()).env("TOKIO_WORKER_THREADS", "1");
    let output = command.output().context("fill a store")?;
    if !output.status.success() {
        bail!("filling a store ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout).context("read a store's figure")?;
    text.trim().parse().context("read a store's figure")
}

/// Fills a manager's cache, and returns the number of pods and the resident memory.
async fn run_manager<P: Object>(client: Client) -> Result<(usize, usize)> {
    struct Idle {
        reached: Arc<Notify>,
        found: Arc<std::sync::OnceLock<Result<(usize, usize)>>>,
        count: fn(&Context<ConfigMap>) -> usize,
    }
    impl Reconciler<ConfigMap> for Idle {
        type Error = Infallible;

        async fn reconcile(
            &self,
            _: &ConfigMap,
            ctx: &Context<ConfigMap>,
        ) -> Result<kubewright::action::Action, Infallible> {
            // The cache is full, and nothing else is running.
            let count = (self.count)(ctx);
            _ = self.found.set(resident().map(|resident| (count, resident)));
            self.reached.notify_one();
            Ok(kubewright::action::Action::await_change())
        }
    }
    let (reached, found) = (Arc::new(Notify::new()), Arc::default());
    let idle = Idle {
        reached: reached.clone(),
        found: Arc::clone(&found),
        count: |ctx| ctx.cached::<P>().map_or(0, |pods| pods.len()),
    };
    let manager = Manager::new(client).controller(Controller::<ConfigMap>::new(idle).reads::<P>());
    manager.run_until(async move { reached.notified().await }).await?;
    Arc::into_inner(found).and_then(std::sync::OnceLock::into_inner).context("the reconciler was not reached")?
}

/// Fills kube-runtime's store, and returns the number of pods and the resident memory.
async fn reflect(client: Client, strip: bool) -> Result<(usize, usize)> {
    let (reader, writer) = reflector::store::<Pod>();
    let pods = watcher(Api::<Pod>::all(client), watcher::Config::default()).modify(move |pod| {
        if strip {
            pod.metadata.managed_fields = None;
        }
    });
    let reflecting = reflector(writer, pods).for_each(|_| async {});
    tokio::select! {
        () = reflecting => bail!("the watch has ended"),
        ready = reader.wait_until_ready() => ready.context("the store is filled")?,
        () = tokio::time::sleep(Duration::from_secs(600)) => bail!("the store is not filled"),
    }
    Ok((reader.len(), resident()?))
}

/// Returns the resident memory of this process in bytes.
fn resident() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("find the resident memory")?;
    let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().context("read the resident memory")?;
    Ok(kilobytes * 1024)
}

/// An API server with pods and one ConfigMap, whose watches never send an event.
async fn answer<B>(
    request: Request<B>,
    count: usize,
) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = if query.contains("watch=true") {
        StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>()).boxed_unsync()
    } else {
        let text = if request.uri().path().ends_with("/pods") { page(&query, count) } else { config_maps() };
        Full::new(Bytes::from(text)).boxed_unsync()
    };
    Ok(Response::new(body))
}

fn config_maps() -> String {
    let one = r#"{"metadata":{"name":"only","namespace":"default","uid":"u","resourceVersion":"1"}}"#;
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMapList","metadata":{{"resourceVersion":"1"}},"items":[{one}]}}"#)
}

/// Returns the page of the list of pods that the query selects.
fn page(query: &str, count: usize) -> String {
    let parameter =
        |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
    let limit = parameter("limit").unwrap_or(count);
    let from: usize = parameter("continue").unwrap_or(0);
    let to = count.min(from + limit);
    let next = if to < count { to.to_string() } else { String::new() };
    // The file has line breaks for readability; the server sends compact JSON.
    let template = POD.lines().map(str::trim_start).collect::<String>().replace("\": ", "\":");
    let pods = (from..to).map(|number| pod(&template, number)).collect::<Vec<_>>().join(",");
    format!(
        r#"{{"apiVersion":"v1","kind":"PodList","metadata":{{"resourceVersion":"1","continue":"{next}"}},"items":[{pods}]}}"#
    )
}

fn pod(template: &str, number: usize) -> String {
    let owner = number / PER_OWNER;
    // Digits that differ in every place from number to number, like those of UIDs and hashes.
    let mixed =
        |number: usize, salt: u64| (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.rotate_left(7);
    let uid = |number: usize, salt| {
        let digits = format!("{:016x}{:016x}", mixed(number, salt), mixed(number, salt + 1));
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        parts.join("-")
    };
    let set = &format!("{:016x}", mixed(owner, 3))[..10];
    let suffix = &format!("{:016x}", mixed(number, 4))[..5];
    let container = [5, 6, 7, 8].map(|salt| format!("{:016x}", mixed(number, salt))).concat();
    let values = [
        ("{set}", set),
        ("{suffix}", suffix),
        ("{namespace}", &(number / PER_NAMESPACE).to_string()),
        ("{uid}", &uid(number, 1)),
        ("{owner}", &uid(owner, 2)),
        ("{version}", &(1_000_000 + number).to_string()),
        ("{minute}", &format!("{:02}", owner % 60)),
        ("{node}", &(number % 200).to_string()),
        ("{a}", &(number / 62_500).to_string()),
        ("{b}", &(number / 250 % 250).to_string()),
        ("{c}", &(number % 250).to_string()),
        ("{container}", &container),
    ];
    values.into_iter().fold(template.to_owned(), |text, (place, value)| text.replace(place, value))
}
