//! Which cluster is meant, and whether it is there.

use std::{
    env,
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use super::failure::explain;

/// How long the cluster may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(15);

/// Which cluster.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Connection {
    /// The kubeconfig file [default: $KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// A cluster that has answered.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) client: Client,
    name: String,
    /// Where it is.
    url: String,
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.url)
    }
}

impl Remote {
    /// A cluster that is known to be there, by a name and where it is found.
    pub(crate) fn new(client: Client, name: &str, found: impl fmt::Display) -> Self {
        Self { client, name: name.into(), url: found.to_string() }
    }
}

impl Connection {
    /// Finds the cluster, and asks it for its version, which everybody may.
    pub(crate) async fn connect(&self) -> Result<Remote> {
        let (name, config) = self.config().await?;
        let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = Client::try_from(config).with_context(|| format!("use {name} ({url})"))?;
        let remote = Remote { client, name, url };
        match tokio::time::timeout(PATIENCE, remote.client.apiserver_version()).await {
            Ok(Ok(_)) => Ok(remote),
            Ok(Err(error)) => bail!("no cluster at {remote}: {}", explain(&error)),
            Err(_) => bail!(
                "no cluster at {remote}: there was no answer within {} s; is there a way to it from here (network, VPN, proxy)?",
                PATIENCE.as_secs()
            ),
        }
    }

    /// As kubectl finds it: `--kubeconfig`, then `KUBECONFIG`, then `~/.kube/config`, then the pod's own cluster.
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
                    "no cluster: --kubeconfig and KUBECONFIG are not set, and there is no ~/.kube/config; name a kubeconfig with \
                     --kubeconfig, or start a cluster with kubewright cluster"
                ),
            },
        };
        self.of(read).await.map_err(|error| anyhow::anyhow!("{from}: {error}; {}", hint(&error)))
    }

    async fn of(&self, kubeconfig: Result<Kubeconfig, KubeconfigError>) -> Result<(String, Config), KubeconfigError> {
        let kubeconfig = kubeconfig?;
        let current = self.context.clone().or_else(|| kubeconfig.current_context.clone());
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        Ok((format!("context {}", current.unwrap_or_default()), config))
    }
}

fn is_set(value: &OsStr) -> bool {
    !value.is_empty()
}

fn hint(error: &KubeconfigError) -> &'static str {
    match error {
        KubeconfigError::CurrentContextNotSet => "choose one with --context or kubectl config use-context",
        KubeconfigError::LoadContext(_) => "kubectl config get-contexts lists those there are",
        KubeconfigError::ReadConfig(_, path) if !Path::exists(path) => {
            "name another file with --kubeconfig or KUBECONFIG"
        }
        _ => "mend the file, or name another with --kubeconfig",
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
        format!("{:#}", connection.connect().await.err().expect("there is no cluster"))
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

    #[tokio::test]
    async fn a_kubeconfig_that_leads_nowhere_is_told_of() {
        for (kubeconfig, context, says) in [
            (None, None, "name another file with --kubeconfig or KUBECONFIG"),
            (Some("]["), None, "mend the file, or name another with --kubeconfig"),
            (Some(EMPTY), None, "choose one with --context"),
            (Some(NOBODY), Some("there"), "kubectl config get-contexts lists those there are"),
            (Some(NOBODY), None, "is the cluster running, and is it the right context"),
        ] {
            let said = refused(kubeconfig, context).await;
            assert!(said.contains(says), "{said}");
        }
        let said = refused(Some(NOBODY), None).await;
        assert!(said.starts_with("no cluster at context here (http://127.0.0.1:1): "), "{said}");
    }
}
