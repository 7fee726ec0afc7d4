//! Locating the cluster of the current context, and connecting to it.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use kube::{
    Client, Config,
    config::{Kubeconfig, KubeconfigError},
};

use super::failure::explain;

/// The timeout for the cluster to answer the first request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

// Not a doc comment: clap would show it as the help of the command.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Connection {
    /// Path of the kubeconfig file [default: $KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Name of the kubeconfig context [default: the current context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// A reachable cluster.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) client: Client,
    name: String,
    is_local: bool,
    /// The URL of the API server, or the path of the kubeconfig.
    url: String,
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.url)
    }
}

impl Remote {
    /// Returns a cluster on this machine, with a name and a location for messages.
    pub(crate) fn new(client: Client, name: &str, found: impl fmt::Display) -> Self {
        Self { client, name: name.into(), is_local: true, url: found.to_string() }
    }

    /// Returns whether the API server has a loopback address, so that it can reach servers on loopback addresses.
    pub(crate) fn is_local(&self) -> bool {
        self.is_local
    }
}

impl Connection {
    /// Returns the flags that make kubectl use the same cluster.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let flag = |name: &str, value: &OsStr| [name.into(), value.to_owned()];
        let kubeconfig = self.kubeconfig.iter().flat_map(|path| flag("--kubeconfig", path.as_os_str()));
        let context = self.context.iter().flat_map(|name| flag("--context", name.as_ref()));
        kubeconfig.chain(context).collect()
    }

    /// Connects to the cluster, and requests its version, which requires no permission.
    pub(crate) async fn connect(&self) -> Result<Remote> {
        let (name, config) = self.config().await?;
        let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let is_local = config.cluster_url.host().is_some_and(is_loopback);
        let client = kubewright_connect::client(config).with_context(|| format!("connect to {name} ({url})"))?;
        let remote = Remote { client, name, is_local, url };
        match tokio::time::timeout(CONNECT_TIMEOUT, remote.client.apiserver_version()).await {
            Ok(Ok(_)) => Ok(remote),
            Ok(Err(error)) => bail!("cannot connect to {remote}: {}", explain(&error)),
            Err(_) => bail!(
                "cannot connect to {remote}: no answer within {}s; check the network, the VPN and the proxy settings",
                CONNECT_TIMEOUT.as_secs()
            ),
        }
    }

    /// Finds the configuration as kubectl does: from `--kubeconfig`, `KUBECONFIG`, `~/.kube/config`, or the service
    /// account of the pod.
    async fn config(&self) -> Result<(String, Config)> {
        let home = env::home_dir().map(|home| home.join(".kube/config"));
        let variable = env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
        let (from, read) = match (&self.kubeconfig, variable) {
            (Some(path), _) => (path.display().to_string(), Kubeconfig::read_from(path)),
            (None, Some(_)) => ("KUBECONFIG".into(), Kubeconfig::from_env().map(Option::unwrap_or_default)),
            (None, None) => match home.filter(|path| path.exists()) {
                Some(path) => (path.display().to_string(), Kubeconfig::read_from(&path)),
                None if env::var_os("KUBERNETES_SERVICE_HOST").as_deref().is_some_and(is_set) => {
                    let config = Config::incluster().context("use the pod's service account")?;
                    return Ok(("the pod's own cluster".into(), config));
                }
                None => bail!(
                    "no kubeconfig: --kubeconfig and KUBECONFIG are not set, and ~/.kube/config does not exist; set one of them, or start a \
                     cluster with kubewright cluster"
                ),
            },
        };
        self.of(read).await.map_err(|error| anyhow::anyhow!("{from}: {error}; {}", hint(&error)))
    }

    async fn of(&self, kubeconfig: Result<Kubeconfig, KubeconfigError>) -> Result<(String, Config), KubeconfigError> {
        let kubeconfig = kubeconfig?;
        let current = self.context.clone().or_else(|| kubeconfig.current_context.clone());
        let config = kubewright_connect::config(kubeconfig, self.context.as_deref()).await?;
        Ok((format!("context {}", current.unwrap_or_default()), config))
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn is_set(value: &OsStr) -> bool {
    !value.is_empty()
}

fn hint(error: &KubeconfigError) -> &'static str {
    match error {
        KubeconfigError::CurrentContextNotSet => "choose a context with --context or kubectl config use-context",
        KubeconfigError::LoadContext(_) => "run kubectl config get-contexts to list the contexts",
        KubeconfigError::ReadConfig(_, path) if !Path::exists(path) => {
            "choose another file with --kubeconfig or KUBECONFIG"
        }
        _ => "fix the file, or choose another with --kubeconfig",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refused(kubeconfig: Option<&str>, context: Option<&str>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        if let Some(text) = kubeconfig {
            std::fs::write(&path, text).unwrap();
        }
        let connection = Connection { kubeconfig: Some(path), context: context.map(Into::into) };
        format!("{:#}", connection.connect().await.err().expect("an error"))
    }

    const EMPTY: &str = "apiVersion: v1\nkind: Config\n";
    const NOBODY: &str = "\
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: nobody}}]
clusters: [{name: here, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: nobody, user: {}}]
";

    #[test]
    fn clusters_on_this_machine_are_recognized() {
        for (host, local) in
            [("127.0.0.1", true), ("[::1]", true), ("localhost", true), ("10.0.0.1", false), ("a.b", false)]
        {
            assert_eq!(is_loopback(host), local, "{host}");
        }
    }

    #[tokio::test]
    async fn a_kubeconfig_without_a_cluster_is_an_error_with_a_hint() {
        for (kubeconfig, context, says) in [
            (None, None, "choose another file with --kubeconfig or KUBECONFIG"),
            (Some("]["), None, "fix the file, or choose another with --kubeconfig"),
            (Some(EMPTY), None, "choose a context with --context"),
            (Some(NOBODY), Some("there"), "run kubectl config get-contexts to list the contexts"),
            (Some(NOBODY), None, "check that the cluster is running"),
        ] {
            let said = refused(kubeconfig, context).await;
            assert!(said.contains(says), "{said}");
        }
        let said = refused(Some(NOBODY), None).await;
        assert!(said.starts_with("cannot connect to context here (http://127.0.0.1:1): "), "{said}");
    }
}
