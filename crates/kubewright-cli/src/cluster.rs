//! An embedded cluster in this process, for commands that keep one running until a signal arrives.

use std::{
    io::IsTerminal,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, ServiceAccount};
use kube::{Api, ResourceExt, api::PostParams};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_cluster::{Cidr, Cluster, Controllers, Durability, Endpoint, PodNetwork, Pods, ServiceRange};
use kubewright_manifests::yaml;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    audit::{self, AuditOptions, OpenLog},
    images::ImageOptions,
    kubeconfig::{ContextNames, KubeconfigFile, MergedContext, rename, user_kubeconfig},
    shell::Shell,
};

/// The namespace of a context, unless another is chosen. It always exists.
const DEFAULT_NAMESPACE: &str = "default";

// Not a doc comment: clap would show it as the help of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterOptions {
    /// Loopback address to serve the API on; port 0 takes a free port, or the earlier one with --data-dir
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0", value_parser = loopback)]
    listen: SocketAddr,

    /// Directory to keep the cluster in, readable only by you: objects, certificates, tokens, persistent volumes. It is
    /// created if it doesn't exist [default: none, the cluster is in memory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// With --data-dir: answer a write when it is on the disk (fsync), so that it survives a power failure
    #[arg(long, requires = "data_dir")]
    fsync: bool,

    /// Path of the kubeconfig to write; it is removed at exit [default: chosen by the command, and printed]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Name of the context, cluster and user in the kubeconfig [default: chosen by the command]
    #[arg(long, value_name = "NAME", value_parser = context_name)]
    pub(crate) context: Option<String>,

    /// Default namespace of the context; it is created if necessary
    #[arg(long, short, value_name = "NAMESPACE", default_value = DEFAULT_NAMESPACE)]
    namespace: String,

    /// Add the context to the kubeconfig of kubectl ($KUBECONFIG or ~/.kube/config) as the current one, until the
    /// cluster ends
    #[arg(long)]
    merge: bool,

    /// With --merge: leave the current context as it is
    #[arg(long, requires = "merge")]
    keep_context: bool,

    /// How to run pods
    #[arg(long, value_enum, default_value_t = PodMode::Run)]
    pods: PodMode,

    /// Network of the pods
    #[arg(long, value_enum, default_value_t = PodNetworkMode::Host)]
    pod_network: PodNetworkMode,

    /// With --pod-network namespaces: range of the pods' addresses, such as 10.244.0.0/16, which nothing else on this
    /// machine uses [default: addresses of the loopback network, which some programs refuse]
    #[arg(long, value_name = "CIDR", value_parser = cidr)]
    pod_network_cidr: Option<Cidr>,

    /// Range of the Services' addresses, such as 10.96.0.0/12. Outside of the loopback network, Services answer with
    /// --pod-network namespaces only, and nothing else on this machine may use the range
    #[arg(long, value_name = "CIDR", default_value_t)]
    service_cidr: ServiceRange,

    /// Give each container a file system and processes of its own and its limit of memory, as in Kubernetes. Needs
    /// Linux and root
    #[arg(long)]
    isolate_containers: bool,

    #[command(flatten)]
    images: ImageOptions,

    #[command(flatten)]
    audit: AuditOptions,

    /// Controllers to run: all, none, or their names in kube-controller-manager, separated by commas; -NAME leaves one
    /// out of all
    #[arg(long, value_name = "LIST", default_value_t, allow_hyphen_values = true)]
    controllers: Controllers,

    /// Start nothing but the API server, as envtest does: no controllers, no node
    #[arg(long, conflicts_with_all = ["pods", "pod_network", "pod_network_cidr", "isolate_containers", "images", "image_file", "controllers"])]
    api_only: bool,

    /// Log filter for standard error, such as info or kubewright_cluster=debug
    #[arg(long, value_name = "FILTER", default_value = "warn", env = "KUBEWRIGHT_LOG")]
    log: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PodMode {
    /// Each container is a process of this machine, without isolation
    Run,
    /// Pods become Running without a process
    Simulate,
    /// No node and no scheduler: pods stay Pending unless another program binds and runs them
    None,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PodNetworkMode {
    /// That of this machine: each pod has its own address, but two programs can't listen on one port of all addresses
    Host,
    /// A network namespace for each pod, as in Kubernetes. Needs Linux, root and the program `ip`, and `nft` for
    /// connections to other machines
    Namespaces,
}

fn cidr(text: &str) -> Result<Cidr, String> {
    Cidr::parse(text).ok_or_else(|| "use an address and a length, such as 10.244.0.0/16".into())
}

/// Parses a loopback address; `localhost` is 127.0.0.1.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let address = numeric.as_deref().unwrap_or(text).parse::<SocketAddr>();
    match address {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        Ok(_) => {
            Err("the kubeconfig grants full access, so the cluster serves loopback addresses only: use 127.0.0.1"
                .into())
        }
        Err(_) => Err("use an address and a port, such as 127.0.0.1:6443, or 127.0.0.1:0 for any free port".into()),
    }
}

/// Parses the name of a context.
fn context_name(text: &str) -> Result<String, String> {
    let is_word = |c: char| !c.is_whitespace() && !c.is_control();
    if text.is_empty() || !text.chars().all(is_word) {
        return Err("use a word, such as kubewright".into());
    }
    Ok(text.into())
}

/// A running cluster that serves its API.
pub(crate) struct Running {
    cluster: Cluster,
    audit: Option<audit::Sending>,
    // Declared before the file to which it refers, and so dropped before it.
    merged: Option<MergedContext>,
    kubeconfig: KubeconfigFile,
    address: SocketAddr,
    namespace: String,
    has_node: bool,
    /// Whether namespaces get a default service account.
    has_accounts: bool,
}

impl ClusterOptions {
    /// Sets up logging.
    pub(crate) fn log(&self) -> Result<()> {
        let filter = self.log.parse::<Targets>().with_context(|| format!("invalid --log {}", self.log))?;
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        tracing_subscriber::registry().with(filter).with(lines.with_ansi(std::io::stderr().is_terminal())).init();
        Ok(())
    }

    /// Starts a cluster. `context` is the default name of its context, `traces` the address of an operator's traces.
    pub(crate) async fn start(
        &self,
        clock: &SharedClock,
        context: &str,
        traces: Option<String>,
        shell: &Shell,
    ) -> Result<Running> {
        let pods = match self.pods {
            PodMode::Run => Pods::Run,
            PodMode::Simulate => Pods::Simulate,
            PodMode::None => Pods::None,
        };
        let network = match self.pod_network {
            PodNetworkMode::Host => PodNetwork::Host,
            PodNetworkMode::Namespaces => PodNetwork::Namespaces,
        };
        if network == PodNetwork::Host {
            self.check_ranges()?;
        }
        let builder = Cluster::builder().clock(clock.clone()).pods(pods).pod_network(network);
        let builder = builder.isolate_containers(self.isolate_containers).service_range(self.service_cidr);
        let builder = match self.pod_network_cidr {
            Some(range) => builder.pod_range(range),
            None => builder,
        };
        let builder = builder.images(self.images.table()?);
        let builder = builder.controllers(self.controllers.clone());
        let builder = if self.api_only { builder.api_only() } else { builder };
        let (builder, audit) = match self.audit.open(clock).await? {
            Some(OpenLog { log, sending }) => (builder.audit_log(log), sending),
            None => (builder, None),
        };
        let durability = if self.fsync { Durability::Machine } else { Durability::Process };
        let builder = match &self.data_dir {
            Some(path) => builder.data_dir(path).durability(durability),
            None => builder,
        };
        let cluster = builder.start().await.context("start the cluster")?;
        if self.namespace != DEFAULT_NAMESPACE {
            create_namespace(&cluster, &self.namespace).await?;
        }
        let listening = cluster
            .listen(self.listen)
            .await
            .with_context(|| format!("listen on {} (choose another address with --listen)", self.listen))?;
        let (kubeconfig, merged) = self.write_kubeconfigs(&listening, context, traces, shell)?;
        let (address, namespace) = (listening.address(), self.namespace.clone());
        let has_node = !self.api_only && pods != Pods::None;
        let has_accounts = !self.api_only && self.controllers.contains("serviceaccount-controller");
        Ok(Running { cluster, audit, merged, kubeconfig, address, namespace, has_node, has_accounts })
    }

    /// Returns an error if the network of this machine can't have the addresses that are asked for.
    fn check_ranges(&self) -> Result<()> {
        if let Some(range) = self.pod_network_cidr {
            bail!(
                "pods would not have addresses of {range}: add --pod-network namespaces, or leave out --pod-network-cidr"
            );
        }
        let has_proxy = matches!(self.pods, PodMode::Run) && !self.api_only;
        if has_proxy && !Cidr::from(self.service_cidr).address.is_loopback() {
            let range = self.service_cidr;
            bail!(
                "Services would not answer at addresses of {range}: add --pod-network namespaces, or leave out --service-cidr"
            );
        }
        Ok(())
    }

    /// Writes the kubeconfig of the cluster, and with `--merge` also to that of the user.
    fn write_kubeconfigs(
        &self,
        listening: &Endpoint,
        context: &str,
        traces: Option<String>,
        shell: &Shell,
    ) -> Result<(KubeconfigFile, Option<MergedContext>)> {
        let documents = yaml::read(&listening.kubeconfig()).context("read the kubeconfig of the cluster")?;
        let mut content = documents.into_iter().next().unwrap_or_default();
        let context = self.context.as_deref().unwrap_or(context);
        rename(&mut content, ContextNames { context, namespace: &self.namespace }, traces);
        let text = yaml::without_blocks(&content).context("write the kubeconfig of the cluster")?;
        let kubeconfig = KubeconfigFile::write(self.kubeconfig.as_deref(), &text)?;
        if !self.merge {
            return Ok((kubeconfig, None));
        }
        let users = user_kubeconfig(std::env::var_os("KUBECONFIG"), std::env::home_dir())?;
        let merged = MergedContext::add(users, &content, kubeconfig.path(), self.keep_context)?;
        shell.status("Merged", format!("context {} into {}", merged.context(), merged.path().display()));
        if merged.hides_comments() {
            shell.warning(&format!(
                "{} has comments: they are restored at exit, unless another program changes the file before",
                merged.path().display()
            ));
        }
        Ok((kubeconfig, Some(merged)))
    }
}

async fn create_namespace(cluster: &Cluster, name: &str) -> Result<()> {
    let namespace = Namespace {
        metadata: kube::api::ObjectMeta { name: Some(name.into()), ..Default::default() },
        ..Default::default()
    };
    match Api::all(cluster.client()).create(&PostParams::default(), &namespace).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => {
            Err(error).with_context(|| format!("create the namespace {name} (choose another with --namespace)"))
        }
    }
}

impl Running {
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the path of the kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        self.kubeconfig.path()
    }

    /// Waits until pods can run: the node is ready, and the namespace of the context has its default service account.
    pub(crate) async fn wait_until_ready(&self) -> Result<()> {
        let namespace = self.namespace.as_str();
        let is_here =
            |found: Option<String>, name: &str, expected: &str| found.as_deref() == Some(namespace) && name == expected;
        let account = |account: &ServiceAccount| is_here(account.namespace(), &account.name_any(), "default");
        let certificate = |map: &ConfigMap| is_here(map.namespace(), &map.name_any(), "kube-root-ca.crt");
        let node = async {
            if self.has_node {
                self.cluster.expect::<Node>(|nodes| nodes.iter().any(|node| is_ready(node))).await?;
            }
            anyhow::Ok(())
        };
        let accounts = async {
            if self.has_accounts {
                self.cluster.expect::<ServiceAccount>(|accounts| accounts.iter().any(|found| account(found))).await?;
                self.cluster.expect::<ConfigMap>(|maps| maps.iter().any(|found| certificate(found))).await?;
            }
            anyhow::Ok(())
        };
        let waits = futures::try_join!(node, accounts);
        waits.map(drop).context("wait for the cluster to be ready")
    }

    /// Returns the line that reports that the cluster is ready.
    pub(crate) fn ready_line(&self, clock: &SharedClock) -> String {
        format!(
            "cluster ready in {} ms on https://{}, export KUBECONFIG={}",
            clock.monotonic().as_millis(),
            self.address,
            self.kubeconfig.path().display()
        )
    }

    /// Returns the address of the API server.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops the cluster, and removes its pods, ports and files.
    pub(crate) async fn shutdown(self, shell: &Shell) {
        // The kubeconfigs are removed first, so that they never contain an address at which nothing answers.
        if let Some(merged) = self.merged {
            let place = format!("context {} in {}", merged.context(), merged.path().display());
            if let Err(error) = merged.remove() {
                shell.warning(&format!("{place} was not removed: {error:#}; the next cluster with --merge removes it"));
            }
        }
        drop(self.kubeconfig);
        self.cluster.shutdown().await;
        if let Some(sending) = self.audit {
            sending.finish().await;
        }
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The signals that stop a command: SIGTERM, SIGINT and SIGHUP.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    ignores_hang_up: bool,
}

impl Signals {
    /// Installs the handlers. Must be called before anything is started that a signal has to stop.
    pub(crate) fn listen() -> Result<Self> {
        let terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        let interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
        let ignores_hang_up = ignores_hang_up();
        let hang_up = signal(SignalKind::hangup()).context("listen for SIGHUP")?;
        Ok(Self { terminate, interrupt, hang_up, ignores_hang_up })
    }

    /// Completes when one of the signals arrives.
    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            // The terminal was closed.
            _ = self.hang_up.recv(), if !self.ignores_hang_up => {}
        }
    }
}

/// Returns whether this process was started to outlive its terminal, for example by `nohup`. Only detected on Linux.
pub(crate) fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
