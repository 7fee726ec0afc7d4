//! `kubewright-corpus`: generates the cases and records the answers of a real API server.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints its progress and its results")]

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use http::Request;
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use kubewright_corpus::{
    Corpus, NAMESPACE, RawAnswer, RawRequest, Transport, Verb, create_namespace, exchange,
    generate::generate,
    prepare,
    scenario::{Scenario, define, run as run_scenario},
};
use serde_json::json;

/// Record the answers of a real API server to the requests of the corpus.
#[derive(Debug, Parser)]
#[command(name = "kubewright-corpus", after_help = "Example:\n  cargo xtask corpus record --kubeconfig ~/.kube/config")]
struct Arguments {
    /// The kubeconfig of a cluster for tests, whose controllers don't run: their writes would change the answers. The
    /// namespace `corpus` is created there, and one for each scenario
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The definitions of the cases
    #[arg(long, default_value = "crates/kubewright-corpus/cases")]
    cases: PathBuf,
    /// The definitions of the scenarios
    #[arg(long, default_value = "crates/kubewright-corpus/scenarios")]
    scenarios: PathBuf,
    /// The version that is recorded, if the server doesn't know its own (one that was built from Go modules)
    #[arg(long)]
    server_version: Option<String>,
    /// The table of Kubernetes' types
    #[arg(long, default_value = "crates/kubewright-apiserver/data/types.txt")]
    types: PathBuf,
    /// The directory of the corpus
    #[arg(long, default_value = "crates/kubewright-apiserver/tests/corpus")]
    output: PathBuf,
    /// Record only the files whose name contains this; that of a scenario begins with `scenarios/`
    filter: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<()> {
    let mut corpora = generate(&arguments.cases, &arguments.types)?;
    let mut scenarios = define(&arguments.scenarios)?;
    if let Some(filter) = &arguments.filter {
        corpora.retain(|corpus| corpus.name.contains(filter.as_str()));
        scenarios.retain(|scenario| format!("scenarios/{}", scenario.name).contains(filter.as_str()));
    }
    ensure!(!corpora.is_empty() || !scenarios.is_empty(), "no definition's name contains the filter");
    let kubeconfig = Kubeconfig::read_from(&arguments.kubeconfig)
        .with_context(|| format!("read {}", arguments.kubeconfig.display()))?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // The answers 429, 503 and 504 are recorded, too.
    config.default_retry = false;
    let server = Server(Client::try_from(config)?);
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
