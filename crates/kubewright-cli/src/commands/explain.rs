//! `kubewright explain`: explains the state of an object.

use anyhow::Result;
use kube::config::Kubeconfig;
use kubewright_apimachinery::clock::SharedClock;

use crate::{
    explain::{ExplainOptions, Kubectl, gather},
    kubeconfig::traces,
    remote::Connection,
    shell::Shell,
};

/// Arguments of `kubewright explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Explain a PodSet
  kubewright explain podset/web -n demo

  # Name the group of the kind
  kubewright explain podset.app.example.com/web

  # Ask an operator that runs outside of the cluster, as kubewright run prints it
  kubewright explain cronjob/backup --traces http://127.0.0.1:41234

The output has the conditions, owners and events of the object, what its operator did with it, and what the operator waits for now. Operators are
found among the pods labelled control-plane=controller-manager, and in kubewright dev. Pods that are not on this machine are reached by
kubectl port-forward.")]
pub(crate) struct Arguments {
    /// Object to explain
    #[arg(value_name = "KIND/NAME", value_parser = object)]
    object: (String, String),

    /// Namespace of the object [default: the namespace of the context]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,

    /// URL of the operator's probes and traces [default: found by the operator's pods]
    #[arg(long, value_name = "URL")]
    traces: Option<String>,

    #[command(flatten)]
    connection: Connection,
}

fn object(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('/').filter(|(kind, name)| !kind.is_empty() && !name.is_empty() && !name.contains('/'));
    pair.map(|(kind, name)| (kind.into(), name.into())).ok_or_else(|| "use KIND/NAME, such as podset/web".into())
}

/// Prints the explanation. A source that does not respond results in a warning.
pub(crate) async fn run(arguments: Arguments, clock: SharedClock, shell: &Shell) -> Result<()> {
    let given = arguments.connection.kubeconfig.clone();
    let kubectl = Kubectl { program: "kubectl".into(), flags: arguments.connection.flags() };
    let client = arguments.connection.connect().await?.client;
    let (kind, name) = arguments.object;
    // Errors in the file were already reported above.
    let file = given.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    let local_traces = file.ok().and_then(|file| traces(&file, arguments.connection.context.as_deref()));
    let options =
        ExplainOptions { kind, name, namespace: arguments.namespace, traces: arguments.traces, local_traces, kubectl };
    let explanation = gather(&client, &options, clock.now()).await?;
    for sentence in &explanation.sentences {
        shell.result(sentence);
    }
    for problem in &explanation.problems {
        shell.warning(problem);
    }
    Ok(())
}
