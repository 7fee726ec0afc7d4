//! `kubewright-corpus`: records the answers of a real API server, and compares those of two servers.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints its progress and its results")]

use std::{
    cmp::Reverse,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use http::Request;
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use kubewright_corpus::{
    Corpus, NAMESPACE, RawAnswer, RawRequest, Transport, Verb,
    compare::{Comparison, Difference},
    create_namespace, exchange, generate, prepare,
    random::Generator,
    scenario::{Reply, Scenario, define, run as run_scenario},
};
use serde_json::json;

/// The number of characters of an answer that are shown.
const SHOWN: usize = 600;

/// Record the answers of a real API server, or compare it with another one.
#[derive(Debug, Parser)]
#[command(name = "kubewright-corpus")]
struct Arguments {
    /// The table of Kubernetes' types
    #[arg(long, global = true, default_value = "crates/kubewright-apiserver/data/types.txt")]
    types: PathBuf,
    /// The definitions of the cases
    #[arg(long, global = true, default_value = "crates/kubewright-corpus/cases")]
    cases: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Record the answers of a real API server to the requests of the corpus
    #[command(after_help = "Example:\n  cargo xtask corpus record --kubeconfig ~/.kube/config")]
    Record(Record),
    /// Send random requests to two API servers, and list the answers that differ
    #[command(
        after_help = "Example:\n  cargo xtask corpus compare --kubeconfig real --with embedded --objects 1000 --seed 7"
    )]
    Compare(Compare),
}

#[derive(Debug, Args)]
struct Record {
    /// The kubeconfig of a cluster for tests, whose controllers don't run: their writes would change the answers. The
    /// namespace `corpus` is created there, and one for each scenario
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The definitions of the scenarios
    #[arg(long, default_value = "crates/kubewright-corpus/scenarios")]
    scenarios: PathBuf,
    /// The version that is recorded, if the server doesn't know its own (one that was built from Go modules)
    #[arg(long)]
    server_version: Option<String>,
    /// The directory of the corpus
    #[arg(long, default_value = "crates/kubewright-apiserver/tests/corpus")]
    output: PathBuf,
    /// Record only the files whose name contains this; that of a scenario begins with `scenarios/`
    filter: Option<String>,
}

#[derive(Debug, Args)]
struct Compare {
    /// The kubeconfig of a cluster for tests, whose controllers don't run: their writes would change the answers.
    /// Namespaces are created there
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The kubeconfig of the other server, such as that of `kubewright cluster --api-only`
    #[arg(long)]
    with: PathBuf,
    /// The number of objects, each of which is created, changed up to three times, and deleted
    #[arg(long, default_value_t = 1000)]
    objects: usize,
    /// The seed of the requests; the same one makes the same requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Compare the texts for people, too
    #[arg(long)]
    texts: bool,
    /// Use only the definitions whose name contains this
    filter: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { types, cases, command } = arguments;
    match command {
        Command::Record(arguments) => record_all(&types, &cases, arguments).await.map(|()| ExitCode::SUCCESS),
        Command::Compare(arguments) => compare(&types, &cases, arguments).await,
    }
}

/// Opens the server of a kubeconfig.
async fn open(kubeconfig: &Path) -> Result<Server> {
    let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    // The answers 429, 503 and 504 are recorded, too.
    config.default_retry = false;
    Ok(Server(Client::try_from(config)?))
}

/// Compares two servers. Fails if an answer differs.
async fn compare(types: &Path, cases: &Path, arguments: Compare) -> Result<ExitCode> {
    let types = generate::types(types)?;
    let mut templates = generate::templates(cases)?;
    // Kubernetes serves custom kinds a little later, and finishes their deletion in the background.
    templates.retain(|template| template.name != "customresourcedefinition");
    templates.retain(|template| arguments.filter.as_deref().is_none_or(|filter| template.name.contains(filter)));
    ensure!(!templates.is_empty(), "no definition's name contains the filter");
    let (one, other) = (open(&arguments.kubeconfig).await?, open(&arguments.with).await?);
    let mut generator = Generator::new(&types, &templates, arguments.seed);
    let suffix = std::process::id().to_string();
    let mut comparison = Comparison::default();
    comparison.extend(&mut generator, (&one, &other), arguments.objects, arguments.texts, &suffix).await?;
    let mut found: Vec<_> = comparison.differences.iter().collect();
    found.sort_by_key(|(_, (count, _))| Reverse(*count));
    for (what, (count, Difference { step, one, other })) in &found {
        println!("{count} × {what}\n    {} {}", step.send, step.body);
        for (name, reply) in [("one", one), ("other", other)] {
            println!("    {name}: {} {}", reply.code, shown(reply));
        }
    }
    let count: usize = found.iter().map(|(_, (count, _))| count).sum();
    println!("{} answers compared, {count} differ in {} ways", comparison.requests, found.len());
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the message of an answer, or the beginning of its body.
fn shown(reply: &Reply) -> String {
    let text = match reply.body["message"].as_str() {
        Some(message) if reply.code >= 400 => message.to_owned(),
        _ => reply.body.to_string(),
    };
    text.chars().take(SHOWN).collect()
}

async fn record_all(types: &Path, cases: &Path, arguments: Record) -> Result<()> {
    let mut corpora = generate::generate(cases, types)?;
    let mut scenarios = define(&arguments.scenarios)?;
    if let Some(filter) = &arguments.filter {
        corpora.retain(|corpus| corpus.name.contains(filter.as_str()));
        scenarios.retain(|scenario| format!("scenarios/{}", scenario.name).contains(filter.as_str()));
    }
    ensure!(!corpora.is_empty() || !scenarios.is_empty(), "no definition's name contains the filter");
    let server = open(&arguments.kubeconfig).await?;
    let version = match arguments.server_version {
        Some(version) => version,
        None => server.0.apiserver_version().await.context("read the version of the server")?.git_version,
    };
    let mut count = record_scenarios(&server, &mut scenarios, &version, &arguments.output.join("scenarios")).await?;
    if !corpora.is_empty() {
        create_namespace(&server, NAMESPACE).await?;
        let recorded = record(&server, &mut corpora, &version).await;
        server.delete(&format!("/api/v1/namespaces/{NAMESPACE}")).await?;
        recorded?;
    }
    std::fs::create_dir_all(&arguments.output)?;
    for corpus in &corpora {
        corpus.write(&arguments.output)?;
        count += corpus.cases.len();
    }
    println!("{count} answers recorded in {}", arguments.output.display());
    Ok(())
}

/// Records the scenarios in namespaces that are new in each run, and returns the number of answers.
async fn record_scenarios(server: &Server, scenarios: &mut [Scenario], version: &str, output: &Path) -> Result<usize> {
    let mut count = 0;
    for scenario in scenarios {
        println!("{} ({} requests)", scenario.name, scenario.steps.len());
        // What an earlier run left, which a cluster without controllers doesn't delete, would change the answers.
        let suffix = std::process::id().to_string();
        let replies = run_scenario(server, scenario, &suffix).await.with_context(|| scenario.name.clone())?;
        scenario.server = version.into();
        for (step, reply) in scenario.steps.iter_mut().zip(replies) {
            step.answer = Some(reply);
        }
        scenario.write(output)?;
        count += scenario.steps.len();
    }
    Ok(count)
}

async fn record(server: &Server, corpora: &mut [Corpus], version: &str) -> Result<()> {
    for corpus in corpora {
        println!("{} ({} cases)", corpus.name, corpus.cases.len());
        corpus.header.server = version.into();
        let Corpus { header, cases, .. } = corpus;
        // An object that a controller has changed, or that was left by an aborted run, would change the answers.
        let name = header.base["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{}/{name}", header.path);
        for case in cases.iter_mut().filter(|case| case.verb == Verb::Create) {
            case.answer = Some(exchange(server, header, case).await.with_context(|| case.case.clone())?);
        }
        prepare(server, header, cases).await.with_context(|| corpus.name.clone())?;
        let mut updates = Ok(());
        for case in cases.iter_mut().filter(|case| case.verb == Verb::Update) {
            match exchange(server, header, case).await.with_context(|| case.case.clone()) {
                Ok(answer) => case.answer = Some(answer),
                Err(error) => updates = Err(error),
            }
        }
        server.delete(&path).await?;
        updates?;
    }
    Ok(())
}

/// A real API server.
struct Server(Client);

impl Server {
    async fn delete(&self, path: &str) -> Result<()> {
        let body = json!({"propagationPolicy": "Background", "gracePeriodSeconds": 0}).to_string();
        let answer = self.send(RawRequest::json("DELETE", path, body)).await?;
        ensure!(matches!(answer.code, 200 | 202 | 404), "{path} can't be deleted: {}", answer.body);
        Ok(())
    }
}

impl Transport for Server {
    async fn send(&self, request: RawRequest) -> Result<RawAnswer> {
        let RawRequest { method, path, headers, body } = request;
        let mut request = Request::builder().method(method.as_str()).uri(&path);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(body.into_bytes()))?;
        let response = self.0.send(request).await.with_context(|| format!("{method} {path}"))?;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let body = String::from_utf8_lossy(&bytes).into_owned();
        Ok(RawAnswer { code: parts.status.as_u16(), headers: parts.headers, body })
    }
}
