//! `kubewright explain`: why an object is as it is.

use anyhow::Result;
use kube::config::Kubeconfig;
use kubewright_apimachinery::clock::SharedClock;

use crate::{
    explain::{Question, gather},
    kubeconfig::traces,
    remote::Connection,
    shell::Shell,
};

/// What to explain, and whom to ask.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright explain podset/web -n demo
  kubewright explain podset.app.example.com/web
  kubewright explain cronjob/backup --traces http://localhost:8081

It tells the object's conditions, owners and events, and what its operator did with it and waits for now.
An operator is looked for among the pods labelled control-plane=controller-manager, at the port of its probes, and where
kubewright dev runs one.")]
pub(crate) struct Arguments {
    /// The object
    #[arg(value_name = "KIND/NAME", value_parser = object)]
    object: (String, String),

    /// Its namespace [default: that of the current context]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,

    /// Where the operator shows its traces: its address for probes
    #[arg(long, value_name = "URL")]
    traces: Option<String>,

    #[command(flatten)]
    connection: Connection,
}

fn object(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('/').filter(|(kind, name)| !kind.is_empty() && !name.is_empty() && !name.contains('/'));
    pair.map(|(kind, name)| (kind.into(), name.into())).ok_or_else(|| "say it as KIND/NAME, such as podset/web".into())
}

/// Asks, and prints the sentences; what could not be asked is told as a warning.
pub(crate) async fn run(arguments: Arguments, clock: SharedClock, shell: &Shell) -> Result<()> {
    let given = arguments.connection.kubeconfig.clone();
    let client = arguments.connection.connect().await?.client;
    let (kind, name) = arguments.object;
    // What was found wrong with the file would have been told above.
    let file = given.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    let noted = file.ok().as_ref().and_then(traces);
    let question = Question { kind, name, namespace: arguments.namespace, traces: arguments.traces, noted };
    let answer = gather(&client, &question, clock.now()).await?;
    for sentence in &answer.sentences {
        shell.result(sentence);
    }
    for trouble in &answer.troubles {
        shell.warning(trouble);
    }
    Ok(())
}
