//! `kubewright-corpus`: generates the cases and records the answers of a real API server.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints its progress and its results")]

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use http::Request;
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use kubewright_corpus::{
    Corpus, NAMESPACE, RawAnswer, RawRequest, Transport, Verb, exchange, generate::generate, prepare, warning,
};
use serde_json::json;

/// Record the answers of a real API server to the requests of the corpus.
#[derive(Debug, Parser)]
#[command(name = "kubewright-corpus", after_help = "Example:\n  cargo xtask corpus record --kubeconfig ~/.kube/config")]
struct Arguments {
    /// The kubeconfig of a cluster for tests. The namespace `corpus` is created there, and deleted at the end
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The definitions of the cases
    #[arg(long, default_value = "crates/kubewright-corpus/cases")]
    cases: PathBuf,
    /// The table of Kubernetes' types
    #[arg(long, default_value = "crates/kubewright-apiserver/data/types.txt")]
    types: PathBuf,
    /// The directory of the corpus
    #[arg(long, default_value = "crates/kubewright-apiserver/tests/corpus")]
    output: PathBuf,
    /// Record only the files whose name contains this
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
    if let Some(filter) = &arguments.filter {
        corpora.retain(|corpus| corpus.name.contains(filter.as_str()));
    }
    ensure!(!corpora.is_empty(), "no definition's name contains the filter");
    let kubeconfig = Kubeconfig::read_from(&arguments.kubeconfig)
        .with_context(|| format!("read {}", arguments.kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let server = Server(Client::try_from(config)?);
    let version = server.0.apiserver_version().await.context("read the version of the server")?;
    server.create_namespace().await?;
    let recorded = record(&server, &mut corpora, &version.git_version).await;
    server.delete(&format!("/api/v1/namespaces/{NAMESPACE}")).await?;
    recorded?;
    std::fs::create_dir_all(&arguments.output)?;
    let mut count = 0;
    for corpus in &corpora {
        corpus.write(&arguments.output)?;
        count += corpus.cases.len();
    }
    println!("{count} answers recorded in {}", arguments.output.display());
    Ok(())
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
    /// Creates the namespace, and waits for its service account, without which no pod can be created.
    async fn create_namespace(&self) -> Result<()> {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}).to_string();
        let answer = self.send(RawRequest { method: "POST", path: "/api/v1/namespaces".into(), body }).await?;
        ensure!(answer.code == 201, "the namespace {NAMESPACE} can't be created: {}", answer.body);
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default");
        for _ in 0..100 {
            let answer = self.send(RawRequest { method: "GET", path: path.clone(), body: String::new() }).await?;
            if answer.code == 200 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("the namespace {NAMESPACE} has no service account after 10 s; is the controller manager running?")
    }

    async fn delete(&self, path: &str) -> Result<()> {
        let body = json!({"propagationPolicy": "Background", "gracePeriodSeconds": 0}).to_string();
        let answer = self.send(RawRequest { method: "DELETE", path: path.into(), body }).await?;
        ensure!(matches!(answer.code, 200 | 202 | 404), "{path} can't be deleted: {}", answer.body);
        Ok(())
    }
}

impl Transport for Server {
    async fn send(&self, request: RawRequest) -> Result<RawAnswer> {
        let RawRequest { method, path, body } = request;
        let request = Request::builder()
            .method(method)
            .uri(&path)
            .header("Content-Type", "application/json")
            .body(Body::from(body.into_bytes()))?;
        let response = self.0.send(request).await.with_context(|| format!("{method} {path}"))?;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let warnings = parts.headers.get_all("warning").iter().filter_map(|value| value.to_str().ok()).map(warning);
        Ok(RawAnswer {
            code: parts.status.as_u16(),
            warnings: warnings.collect(),
            body: String::from_utf8_lossy(&bytes).into_owned(),
        })
    }
}
