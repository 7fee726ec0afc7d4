//! `cargo demo`: an embedded cluster, all five operators in one manager, and their samples, applied as a user would.
//!
//! On a terminal it shows a live view until Ctrl-C. With `--once` it runs the scripts of the operators' tutorials,
//! prints the result of each check, and exits with 0, or with 1 and the differences. The same program also serves the
//! web pages, in place of their images ([`image`]).

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a demo prints")]

mod clusters;
mod environment;
mod image;
mod live;
mod once;
mod web;

use std::{io::IsTerminal, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use crate::environment::Environment;

/// Run the operators on an embedded cluster.
#[derive(Debug, Parser)]
#[command(
    name = "cargo demo",
    after_help = "Examples:\n  cargo demo          a live view until Ctrl-C\n  cargo demo --once   walk through the operators' scripts, print each check, exit\n  cargo demo --clusters 3   one manager on three clusters, one of which goes away and comes back"
)]
struct Arguments {
    /// Walk through the operators' scripts once; exit with 1 if a check fails.
    #[arg(long)]
    once: bool,

    /// Write a picture (SVG) of the live view once all samples are settled, and exit.
    #[arg(long, value_name = "FILE", conflicts_with = "once")]
    snapshot: Option<PathBuf>,

    /// Let one manager work on this number of clusters, one of which goes away and comes back; exit with 1 if a check
    /// fails.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=16), conflicts_with_all = ["once", "snapshot"])]
    clusters: Option<u8>,

    /// The log filter for standard error. The live view uses the whole screen, so by default nothing is logged.
    #[arg(long, value_name = "FILTER", default_value = "off", env = "KUBEWRIGHT_LOG")]
    log: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match image::Image::selected(std::env::args_os()) {
        Some((image, arguments)) => image.run(arguments).await.map(|()| true),
        None => run(Arguments::parse()).await,
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<bool> {
    let filter = arguments.log.parse::<Targets>().with_context(|| format!("read --log {}", arguments.log))?;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry().with(filter).with(lines.with_ansi(std::io::stderr().is_terminal())).init();
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut hang_up = signal(SignalKind::hangup()).context("listen for SIGHUP")?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            // The terminal was closed.
            _ = hang_up.recv() => {}
        }
    };

    if let Some(count) = arguments.clusters {
        return tokio::select! {
            outcome = clusters::run(count.into()) => outcome,
            () = stop => Ok(false),
        };
    }
    let environment = Environment::start().await?;
    let outcome = tokio::select! {
        outcome = show(&environment, &arguments) => outcome,
        () = stop => Ok(!arguments.once && arguments.snapshot.is_none()),
    };
    environment.stop().await?;
    outcome
}

/// Runs the selected mode, and returns whether all checks passed.
async fn show(environment: &Environment, arguments: &Arguments) -> Result<bool> {
    if arguments.once {
        return once::run(environment).await;
    }
    environment.apply_samples().await?;
    if let Some(file) = &arguments.snapshot {
        live::snapshot(environment, file).await?
    } else if std::io::stdout().is_terminal() {
        live::view(environment).await?
    } else {
        live::print(environment).await?
    }
    Ok(true)
}
