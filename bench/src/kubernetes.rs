//! The embedded API server beside kube-apiserver and etcd: the same requests of the same client to both, in turns.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::Method;
use kube::Config;
use kubewright_apimachinery::clock::SharedClock;
use rcgen::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    creates::pod,
    fanout,
    load::Target,
    process::{self, Process},
    report::{Limit, Outcome, milliseconds, percentile},
    sizes::Sizes,
};

/// The token of an administrator of kube-apiserver.
const TOKEN: &str = "benchmark";
/// The file of the kubeconfig.
const KUBECONFIG: &str = "kubeconfig";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
/// The number of watches on each connection by HTTP/2.
const SHARED: usize = 100;
const ROUNDS: usize = 3;
/// How often each pod is read.
const GETS: usize = 10;
/// The timeout for kube-apiserver to become ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// The programs to compare.
pub(crate) struct Contest<'a> {
    pub(crate) kubewright: &'a Path,
    pub(crate) kube_apiserver: &'a Path,
    pub(crate) etcd: &'a Path,
    pub(crate) sizes: &'a Sizes,
    pub(crate) clock: SharedClock,
}

/// The measurements of one server: a value for each round.
#[derive(Default)]
pub(crate) struct Series {
    pub(crate) config_map_creates: Vec<f64>,
    pub(crate) pod_creates: Vec<f64>,
    pub(crate) gets: Vec<f64>,
    lists: Vec<f64>,
    fanout: Vec<f64>,
    shared_fanout: Vec<f64>,
}

impl Contest<'_> {
    /// Measures both servers in turns. Each has processes of its own, and the other one is idle meanwhile.
    pub(crate) async fn hold(self) -> Result<Vec<Outcome>> {
        let peer = ControlPlane::start(self.kube_apiserver, self.etcd).await?;
        let (cluster, kubeconfig) = process::cluster(self.kubewright, &["--api-only"])?;
        let kubeconfig = fs::read_to_string(kubeconfig).context("read the kubeconfig")?;
        let targets = [Target::new(&process::config(&kubeconfig).await?, None)?, peer.target.clone()];
        let mut series = [Series::default(), Series::default()];
        for round in 0..if self.sizes.smoke { 1 } else { ROUNDS } {
            let mut order = [0, 1];
            order.rotate_left(round % 2);
            for server in order {
                self.round(round, &targets[server], &mut series[server]).await?;
            }
        }
        let memory =
            [cluster.resident_mebibytes()?, peer.server.resident_mebibytes()? + peer.etcd.resident_mebibytes()?];
        peer.end()?;
        cluster.end()?;
        Ok(outcomes(series, memory))
    }

    async fn round(&self, round: usize, target: &Target, series: &mut Series) -> Result<()> {
        let clock = &self.clock;
        let pod = serde_json::to_value(pod()).context("write a pod")?;
        let rates = creates(target, pod, round, self.sizes.compared, clock).await?;
        series.config_map_creates.push(rates.config_maps);
        series.pod_creates.push(rates.pods);
        series.gets.push(gets(target, self.sizes.compared, clock).await?);

        let begun = clock.monotonic();
        target.send(Method::GET, PODS, Bytes::new()).await.context("list the pods")?;
        series.lists.push(milliseconds(clock.monotonic().saturating_sub(begun)));
        target.send(Method::DELETE, &format!("{PODS}?gracePeriodSeconds=0"), Bytes::new()).await?;

        let (watchers, writes) = (self.sizes.watchers, self.sizes.watched_writes);
        target.send(Method::DELETE, fanout::MAPS, Bytes::new()).await?;
        let mut delays = fanout::delays(target, watchers, 1, writes, clock).await?;
        series.fanout.push(milliseconds(percentile(&mut delays, 99)));
        target.send(Method::DELETE, fanout::MAPS, Bytes::new()).await?;
        let mut delays = fanout::delays(target, watchers, watchers.min(SHARED), writes, clock).await?;
        series.shared_fanout.push(milliseconds(percentile(&mut delays, 99)));
        Ok(())
    }
}

/// The numbers of objects that a server creates per second.
pub(crate) struct Creates {
    pub(crate) config_maps: f64,
    pub(crate) pods: f64,
}

/// Creates so many ConfigMaps and pods like the given one, from concurrent callers. The pods of the round before must
/// be deleted.
pub(crate) async fn creates(
    target: &Target,
    mut pod: Value,
    round: usize,
    count: usize,
    clock: &SharedClock,
) -> Result<Creates> {
    let create_map = move |number| {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{number}-{round}")},
            "data": {"greeting": "hello".repeat(20)},
        });
        (Method::POST, "/api/v1/namespaces/default/configmaps".to_owned(), map.to_string().into())
    };
    let config_maps = target.rate(count, clock, create_map).await.context("create config maps")?;
    pod["metadata"]["name"] = "NAME".into();
    pod["metadata"]["labels"]["round"] = round.to_string().into();
    let pod: Arc<str> = pod.to_string().into();
    let create_pod =
        move |number| (Method::POST, PODS.to_owned(), pod.replacen("NAME", &format!("pod-{number:05}"), 1).into());
    let pods = target.rate(count, clock, create_pod).await.context("create pods")?;
    Ok(Creates { config_maps, pods })
}

/// Gets each of the created pods several times, from concurrent callers, and returns how many are answered per second.
pub(crate) async fn gets(target: &Target, count: usize, clock: &SharedClock) -> Result<f64> {
    let get = move |number| (Method::GET, format!("{PODS}/pod-{:05}", number % count), Bytes::new());
    target.rate(GETS * count, clock, get).await.context("get pods")
}

fn outcomes(series: [Series; 2], memory: [f64; 2]) -> Vec<Outcome> {
    let [ours, theirs] = series;
    let outcome = |name, unit, limit, ours: Vec<f64>, theirs: Vec<f64>, is_rate: bool, method| {
        let [ours, theirs] = [ours, theirs].map(median);
        let figure = if is_rate { ours / theirs } else { theirs / ours };
        let details = format!("{ours:.1} {unit}; kube-apiserver {theirs:.1} {unit}");
        Outcome { name, figure, unit: "times", limit: Limit::AtLeast(limit), details, method }
    };
    let mut outcomes = vec![
        outcome(
            "beside-config-map-creates",
            "a second",
            10.0,
            ours.config_map_creates,
            theirs.config_map_creates,
            true,
            CREATES,
        ),
        outcome("beside-pod-creates", "a second", 10.0, ours.pod_creates, theirs.pod_creates, true, POD_CREATES),
        outcome(
            "beside-gets",
            "a second",
            8.0,
            ours.gets,
            theirs.gets,
            true,
            "The same callers get each of these pods ten times.",
        ),
        outcome("beside-list", "ms", 5.0, ours.lists, theirs.lists, false, LIST),
        outcome("beside-fanout", "ms at p99", 10.0, ours.fanout, theirs.fanout, false, FANOUT),
        outcome(
            "beside-fanout-shared",
            "ms at p99",
            10.0,
            ours.shared_fanout,
            theirs.shared_fanout,
            false,
            SHARED_FANOUT,
        ),
    ];
    let [ours, theirs] = memory;
    outcomes[0].details += &format!("; at the end {ours:.0} MiB resident, {theirs:.0} with etcd");
    outcomes
}

const CREATES: &str = "`kubewright cluster --api-only`, and kube-apiserver 1.36.3 with etcd 3.6.8 (without the admission plugin \
    ServiceAccount, which needs a controller), run as processes of their own on the same two cores; one is idle while the other is \
    measured, in turns. 32 concurrent callers create 10,000 ConfigMaps over TLS on loopback, each on a connection of its own; they send \
    prepared bodies and don't parse the responses. The figure is the quotient of the medians of three rounds. The client's own work, \
    which is the same for both, is part of it: it makes the quotient smaller.";
const POD_CREATES: &str = "The same callers create 10,000 pods, as `pod-creates` does.";
const LIST: &str = "The time of one list of these 10,000 pods as JSON, until its last byte. The figure is the time of kube-apiserver divided \
    by that of the embedded API server.";
const SHARED_FANOUT: &str = "As `beside-fanout`, with ten connections by HTTP/2 that have 100 watches each, as the watches of one process with Go's \
    client share a connection.";
const FANOUT: &str = "`watch-fanout` on both; the quotient of the 99th percentiles.";

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A running kube-apiserver with its etcd.
pub(crate) struct ControlPlane {
    // Dropped in this order: the server is killed before its store.
    server: Process,
    etcd: Process,
    target: Target,
    directory: TempDir,
}

impl ControlPlane {
    /// Starts both, and waits until the server is ready.
    pub(crate) async fn start(kube_apiserver: &Path, etcd: &Path) -> Result<Self> {
        let directory = tempfile::tempdir().context("make a directory")?;
        let file = |name: &str| directory.path().join(name);
        let key = KeyPair::generate().context("make a key")?;
        fs::write(file("signing.pem"), key.serialize_pem()).context("write a key")?;
        fs::write(file("verifying.pem"), key.public_key_pem()).context("write a key")?;
        fs::write(file("tokens.csv"), format!("{TOKEN},admin,admin,\"system:masters\"\n")).context("write a token")?;
        let [store, peers, port] = [free_port()?, free_port()?, free_port()?];
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let mut command = Command::new(etcd);
        command.arg("--data-dir").arg(file("etcd")).args(["--log-level", "error"]);
        for flag in ["--listen-client-urls", "--advertise-client-urls"] {
            command.args([flag, &url(store)]);
        }
        command.args(["--listen-peer-urls", &url(peers)]);
        let etcd = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        let mut command = Command::new(kube_apiserver);
        command.args(["--etcd-servers", &url(store), "--secure-port", &port.to_string()]);
        command.args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none"]);
        command.args(["--service-cluster-ip-range=198.18.0.0/16", "--authorization-mode=RBAC"]);
        command.args([
            "--service-account-issuer=https://kubernetes.default.svc",
            "--disable-admission-plugins=ServiceAccount",
        ]);
        command.arg("--service-account-key-file").arg(file("verifying.pem"));
        command.arg("--service-account-signing-key-file").arg(file("signing.pem"));
        command.arg("--token-auth-file").arg(file("tokens.csv")).arg("--cert-dir").arg(file("certificates"));
        let mut server = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().context("make a URL")?);
        // The server signs its certificate itself.
        config.accept_invalid_certs = true;
        let target = Target::new(&config, Some(TOKEN))?;
        let ready = async {
            loop {
                server.check()?;
                let paths = ["/api/v1/namespaces/default", "/api/v1/namespaces/kube-public", "/readyz"];
                let answers = paths.map(|path| target.send(Method::GET, path, Bytes::new()));
                if futures::future::try_join_all(answers).await.is_ok() {
                    return Ok::<_, anyhow::Error>(());
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ready).await.context("kube-apiserver doesn't become ready")??;
        let address = format!("https://127.0.0.1:{port}");
        fs::write(file(KUBECONFIG), kubeconfig(&address).to_string()).context("write a kubeconfig")?;
        Ok(Self { server, etcd, target, directory })
    }

    /// Returns the path of a kubeconfig of an administrator.
    pub(crate) fn kubeconfig(&self) -> String {
        self.directory.path().join(KUBECONFIG).display().to_string()
    }

    /// Returns the CPU time that both have used so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        Ok(self.server.cpu_seconds()? + self.etcd.cpu_seconds()?)
    }

    /// Ends both.
    pub(crate) fn end(self) -> Result<()> {
        self.server.end().context("end kube-apiserver")?;
        // etcd ends itself with the signal.
        drop(self.etcd);
        Ok(())
    }
}

/// Returns a kubeconfig, which is JSON, as YAML includes it.
fn kubeconfig(address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": address, "insecure-skip-tls-verify": true}}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "admin"}}],
    })
}

pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("find a free port")?;
    Ok(listener.local_addr().context("find a free port")?.port())
}
