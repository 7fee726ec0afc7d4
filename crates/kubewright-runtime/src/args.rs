//! The flags and environment variables of an operator's binary, named as kubebuilder's, and the connection to the
//! cluster.

use std::{
    env, io,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::ArgAction;
use jiff::SignedDuration;
use kube::{
    Client, Config,
    config::{InClusterError, Kubeconfig, KubeconfigError},
};
use kubewright_apimachinery::name;
use kubewright_connect as connect;
use thiserror::Error;

use crate::{
    client::explain, http::BindAddress, log::LogArgs, metrics::Metrics, metrics_server::MetricsArgs, tls::TlsArgs,
    webhook::WebhookArgs,
};

/// The flags of a manager. Flatten them into those of a program with `#[command(flatten)]`.
///
/// A boolean flag is written alone or as `--flag=false`.
///
/// ```
/// # use kubewright_runtime::{args::ManagerArgs, manager::{Manager, ManagerError}};
/// use clap::Parser;
///
/// #[derive(Parser)]
/// struct Program {
///     #[command(flatten)]
///     manager: ManagerArgs,
///     /// Whom to greet
///     #[arg(long, default_value = "world")]
///     greet: String,
/// }
///
/// # fn example() -> Result<(), ManagerError> {
/// let program = Program::parse_from(["greeter", "--leader-elect", "--greet=all"]);
/// assert!(program.manager.leader_elect && program.greet == "all");
/// let manager = Manager::with_args(program.manager)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, clap::Args)]
#[command(about = None, long_about = None)]
pub struct ManagerArgs {
    #[expect(missing_docs, reason = "clap would show it as a heading")]
    #[command(flatten)]
    pub metrics: MetricsArgs,

    /// Address of /healthz and /readyz: host:port, :port for all interfaces, or 0 for no server. Traces and the reasons
    /// of failed checks are served only on loopback, at the same port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    pub health_probe_bind_address: BindAddress,

    /// Keep traces of the last reconciles, and serve them at /debug/traces
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = ArgAction::Set
    )]
    pub traces: bool,

    /// Elect a leader, so that one of several replicas is active
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        action = ArgAction::Set
    )]
    pub leader_elect: bool,

    /// Divide the objects among the replicas, so that all of them are active
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        action = ArgAction::Set
    )]
    pub shard: bool,

    /// Name of the lease, or with --shard the prefix of the leases' names [default: the program's name]
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub leader_election_id: Option<String>,

    /// Namespace of the lease or leases [default: the pod's, or the kubeconfig context's]
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace)]
    pub leader_election_namespace: Option<String>,

    /// Time after the last renewal before another replica takes over, with --leader-elect and --shard
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,

    /// Time after its last renewal when a replica gives up; the difference is the time that its work has to stop
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,

    /// Pause between renewals of the lease
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub leader_elect_retry_period: Duration,

    /// Namespaces to watch, separated by commas [default: all]
    #[arg(
        long,
        value_name = "NAMESPACES",
        env = "WATCH_NAMESPACE",
        default_value = "",
        hide_default_value = true,
        value_parser = namespace_list
    )]
    pub watch_namespace: String,

    /// Serve the admission webhooks
    #[arg(
        long,
        value_name = "BOOL",
        env = "ENABLE_WEBHOOKS",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = ArgAction::Set
    )]
    pub enable_webhooks: bool,

    #[expect(missing_docs, reason = "clap would show it as a heading")]
    #[command(flatten)]
    pub webhook: WebhookArgs,

    #[expect(missing_docs, reason = "clap would show it as a heading")]
    #[command(flatten)]
    pub tls: TlsArgs,

    /// Kubeconfig file [default: $KUBECONFIG, then the pod's service account, then ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// Requests per second to the API server, in the long term [default: no limit]
    #[arg(long, value_name = "RATE", default_value_t = 0.0, hide_default_value = true)]
    pub kube_api_qps: f64,

    /// Requests to the API server that may be sent at once, if their rate is limited
    #[arg(long, value_name = "COUNT", default_value_t = 30)]
    pub kube_api_burst: u32,

    #[expect(missing_docs, reason = "clap would show it as a heading")]
    #[command(flatten)]
    pub log: LogArgs,
}

/// Parses a duration as Go writes it, such as `1m30s`.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>().map_err(|error| format!("{error}; write it as in 15s or 1m30s"))?;
    Duration::try_from(parsed).map_err(|_| "it is negative".into())
}

/// Validates an object name.
fn object_name(text: &str) -> Result<String, String> {
    named(text, name::dns1123_subdomain(text))
}

/// Validates a namespace name.
fn namespace(text: &str) -> Result<String, String> {
    named(text, name::dns1123_label(text))
}

fn named(text: &str, wrong: Vec<String>) -> Result<String, String> {
    if wrong.is_empty() { Ok(text.into()) } else { Err(format!("invalid name {text:?}: {}", wrong.join("; "))) }
}

/// Validates a list of namespaces, which is empty for all. Without validation, an invalid name would go unnoticed and
/// nothing would be watched.
fn namespace_list(text: &str) -> Result<String, String> {
    let names: Vec<_> = names(text).collect();
    if names.is_empty() && !text.trim().is_empty() {
        return Err("the list names no namespace; leave it empty for all namespaces".into());
    }
    names.into_iter().try_for_each(|name| namespace(name).map(drop))?;
    Ok(text.into())
}

fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// The read timeout: the maximum time without data from the API server.
const SILENCE: Duration = Duration::from_secs(310);

/// An error while connecting to the cluster.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No configuration for a cluster was found.
    #[error(
        "no cluster: --kubeconfig and KUBECONFIG are not set, this is not a pod, and {} doesn't exist; \
         name a kubeconfig with --kubeconfig, or start a cluster with `kubewright cluster`",
        .home.as_deref().map_or("~/.kube/config".into(), |home| home.display().to_string())
    )]
    NotFound {
        /// The path of the default kubeconfig, if there is a home directory.
        home: Option<PathBuf>,
    },
    /// A kubeconfig can't be used.
    #[error("{from}: {error}; {hint}", hint = kubeconfig_hint(.error))]
    Kubeconfig {
        /// The source: a file, or `KUBECONFIG`.
        from: String,
        /// The error.
        error: KubeconfigError,
    },
    /// The process runs in a pod, and the pod's service account can't be used.
    #[error(
        "the pod's service account: {0}; mount its token (automountServiceAccountToken), or name a kubeconfig with --kubeconfig"
    )]
    InCluster(InClusterError),
    /// No client can be created from the configuration, usually because of its certificates or proxy.
    #[error("can't make a client for {url}: {}", explain(.error))]
    Client {
        /// The API server's URL.
        url: String,
        /// The error.
        error: kube::Error,
    },
}

/// Returns the configuration with what a manager needs.
fn settled(mut config: Config) -> Config {
    // Reconciles, watches, the leader election and the event recorder do their own retries, since only they know
    // which requests may be repeated.
    config.default_retry = false;
    // The API server ends watches earlier, so a connection without data for this long is dead.
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    config
}

fn kubeconfig_hint(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::CurrentContextNotSet => "choose one with --context or `kubectl config use-context`".into(),
        KubeconfigError::LoadContext(_) => "`kubectl config get-contexts` lists the contexts".into(),
        KubeconfigError::ReadConfig(error, _) if error.kind() == io::ErrorKind::NotFound => {
            "name another file with --kubeconfig or KUBECONFIG".into()
        }
        _ => "correct the file, or name another with --kubeconfig".into(),
    }
}

/// The source of the configuration.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    Environment,
    InCluster,
}

impl ManagerArgs {
    /// Returns the namespaces to watch; an empty list means all.
    pub fn namespaces(&self) -> Vec<String> {
        let mut names: Vec<_> = names(&self.watch_namespace).map(Into::into).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns the client configuration from the first source that exists, even if it is invalid: `--kubeconfig`,
    /// `KUBECONFIG`, the pod's service account, `~/.kube/config`. This is controller-runtime's order.
    ///
    /// # Errors
    /// [`ConnectError`], with a message that suggests a fix.
    pub async fn config(&self) -> Result<Config, ConnectError> {
        let home = env::home_dir().map(|home| home.join(".kube/config"));
        let source = self.source(|name| env::var_os(name).is_some_and(|value| !value.is_empty()), home.as_deref());
        let config = match source.ok_or(ConnectError::NotFound { home })? {
            Source::InCluster => Config::incluster().map_err(ConnectError::InCluster)?,
            Source::Environment => {
                let kubeconfig = Kubeconfig::from_env().map(Option::unwrap_or_default);
                self.config_of(kubeconfig, "KUBECONFIG".into()).await?
            }
            Source::File(path) => self.config_of(Kubeconfig::read_from(&path), path.display().to_string()).await?,
        };
        Ok(settled(config))
    }

    /// Returns a client whose requests are counted. It connects directly or through a proxy; see [`kubewright_connect`]
    /// for the rules. This method doesn't connect yet.
    ///
    /// # Errors
    /// [`ConnectError`], with a message that suggests a fix.
    pub async fn client(&self, metrics: &Metrics) -> Result<Client, ConnectError> {
        let config = self.config().await?;
        let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        let url = config.cluster_url.to_string();
        tracing::info!(cluster = url, "using the cluster");
        let client = connect::client_builder(config).map_err(|error| ConnectError::Client { url, error })?;
        Ok(client.with_layer(&metrics.client_layer(host)).build())
    }

    /// Returns a client of the cluster of a kubeconfig from this place, which doesn't connect yet.
    pub(crate) async fn client_of(kubeconfig: Kubeconfig, from: String) -> Result<Client, ConnectError> {
        let config = connect::config(kubeconfig, None).await;
        let config = settled(config.map_err(|error| ConnectError::Kubeconfig { from, error })?);
        let url = config.cluster_url.to_string();
        connect::client(config).map_err(|error| ConnectError::Client { url, error })
    }

    async fn config_of(
        &self,
        kubeconfig: Result<Kubeconfig, KubeconfigError>,
        from: String,
    ) -> Result<Config, ConnectError> {
        let config = match kubeconfig {
            Ok(kubeconfig) => connect::config(kubeconfig, self.context.as_deref()).await,
            Err(error) => Err(error),
        };
        config.map_err(|error| ConnectError::Kubeconfig { from, error })
    }

    fn source(&self, is_set: impl Fn(&str) -> bool, home: Option<&Path>) -> Option<Source> {
        match &self.kubeconfig {
            Some(path) => Some(Source::File(path.clone())),
            None if is_set("KUBECONFIG") => Some(Source::Environment),
            None if is_set("KUBERNETES_SERVICE_HOST") && self.context.is_none() => Some(Source::InCluster),
            None => home.filter(|home| home.exists()).map(|home| Source::File(home.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use kubewright_apimachinery::clock::SystemClock;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        manager: ManagerArgs,
    }

    fn parse(arguments: &[&str]) -> Result<ManagerArgs, clap::Error> {
        let program = Program::try_parse_from([&["operator"], arguments].concat())?;
        Ok(program.manager)
    }

    #[test]
    fn defaults_are_safe() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.metrics.metrics_bind_address, BindAddress::Disabled);
        assert!(args.metrics.metrics_secure);
        assert_eq!(args.health_probe_bind_address, BindAddress::Host("127.0.0.1".into(), 8081));
        assert!(!args.leader_elect && args.enable_webhooks && args.traces);
        assert_eq!(args.namespaces(), Vec::<String>::new());
    }

    #[test]
    fn durations_are_written_as_in_go() {
        let args = parse(&["--leader-elect-lease-duration=1m30s", "--leader-elect-retry-period", "500ms"]).unwrap();
        assert_eq!(args.leader_elect_lease_duration, Duration::from_secs(90));
        assert_eq!(args.leader_elect_renew_deadline, Duration::from_secs(10));
        assert_eq!(args.leader_elect_retry_period, Duration::from_millis(500));
        for wrong in ["15", "-3s", "soon"] {
            let error = parse(&[&format!("--leader-elect-renew-deadline={wrong}")]).unwrap_err().to_string();
            assert!(error.contains("--leader-elect-renew-deadline"), "{error}");
        }
    }

    #[test]
    fn booleans_are_written_as_in_go() {
        for (flag, expected) in
            [("--leader-elect", true), ("--leader-elect=true", true), ("--leader-elect=false", false)]
        {
            assert_eq!(parse(&[flag]).unwrap().leader_elect, expected, "{flag}");
        }
        let args = parse(&["--leader-elect", "--metrics-bind-address", ":8080"]).unwrap();
        assert_eq!(args.metrics.metrics_bind_address, BindAddress::AllInterfaces(8080));
    }

    #[test]
    fn namespaces_are_split_sorted_and_deduplicated() {
        assert_eq!(parse(&["--watch-namespace", " b, a,,b"]).unwrap().namespaces(), ["a", "b"]);
    }

    #[test]
    fn an_invalid_name_is_an_error_that_names_the_flag() {
        for (flag, value, says) in [
            ("--watch-namespace", "a,Team_A", "invalid name \"Team_A\": a lowercase RFC 1123 label"),
            ("--watch-namespace", " , ", "leave it empty for all namespaces"),
            ("--leader-election-namespace", "a.b", "invalid name \"a.b\""),
            ("--leader-election-id", "My_Operator", "invalid name \"My_Operator\": a lowercase RFC 1123 subdomain"),
        ] {
            let error = parse(&[flag, value]).unwrap_err().to_string();
            assert!(error.contains(flag) && error.contains(says), "{error}");
        }
        assert_eq!(parse(&["--watch-namespace", ""]).unwrap().namespaces(), Vec::<String>::new());
    }

    #[test]
    fn an_invalid_address_is_an_error_that_names_the_flag() {
        let error = parse(&["--metrics-bind-address", "8080"]).unwrap_err().to_string();
        assert!(error.contains("--metrics-bind-address") && error.contains("use host:port, :port"), "{error}");
    }

    #[test]
    fn the_first_kubeconfig_source_is_used() {
        let home = tempfile::NamedTempFile::new().unwrap();
        let check = |arguments: &[&str], set: &[&str], home: Option<&Path>, expected: Option<Source>| {
            let found = parse(arguments).unwrap().source(|name| set.contains(&name), home);
            assert_eq!(found, expected, "{arguments:?} {set:?}");
        };
        let (flag, both) = (["--kubeconfig", "f"], ["KUBECONFIG", "KUBERNETES_SERVICE_HOST"]);
        let at_home = Some(Source::File(home.path().into()));
        check(&flag, &both, Some(home.path()), Some(Source::File("f".into())));
        check(&[], &both, Some(home.path()), Some(Source::Environment));
        check(&[], &both[1..], Some(home.path()), Some(Source::InCluster));
        check(&["--context", "c"], &both[1..], Some(home.path()), at_home);
        check(&[], &[], Some(Path::new("/nonexistent/config")), None);
    }

    async fn connect_error(kubeconfig: Option<&str>, arguments: &[&str]) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        if let Some(text) = kubeconfig {
            std::fs::write(&path, text).unwrap();
        }
        let mut args = parse(arguments).unwrap();
        args.kubeconfig = Some(path.clone());
        let error = args.client(&Metrics::new(SystemClock::shared())).await.err().expect("it is broken");
        error.to_string().replace(&path.display().to_string(), "FILE")
    }

    #[tokio::test]
    async fn errors_say_what_to_do() {
        let empty = "apiVersion: v1\nkind: Config\n";
        for (kubeconfig, arguments, says) in [
            (None, vec![], "name another file with --kubeconfig or KUBECONFIG"),
            (Some("]["), vec![], "correct the file, or name another with --kubeconfig"),
            (Some(empty), vec![], "choose one with --context or `kubectl config use-context`"),
            (Some(empty), vec!["--context", "prod"], "`kubectl config get-contexts` lists the contexts"),
        ] {
            let error = connect_error(kubeconfig, &arguments).await;
            assert!(error.starts_with("FILE: ") && error.ends_with(says), "{error}");
        }
        let error = ConnectError::NotFound { home: None }.to_string();
        assert!(error.contains("~/.kube/config doesn't exist; name a kubeconfig with --kubeconfig"), "{error}");
    }
}
