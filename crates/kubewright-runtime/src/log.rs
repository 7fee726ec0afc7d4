//! Logging: `tracing` to standard error, for people or for machines.
//!
//! It configures the process once, from flags and environment. A program that has its own subscriber keeps it. With the cargo
//! feature `opentelemetry` it also starts the export of spans, if the environment asks for it.

use std::{env, io, io::IsTerminal};

use clap::ValueEnum;
use thiserror::Error;
use tracing::level_filters::LevelFilter;
#[cfg(not(feature = "opentelemetry"))]
use tracing_subscriber::layer::Layered;
use tracing_subscriber::{
    Layer, Registry,
    filter::Targets,
    layer::SubscriberExt,
    registry,
    util::{SubscriberInitExt, TryInitError},
};

/// The environment variables that set the level when no flag does, in order of precedence.
pub const ENVIRONMENT: [&str; 2] = ["KUBEWRIGHT_LOG", "RUST_LOG"];

/// What is added to a lone level: what kube's client says of failed requests, their callers say better.
const QUIET: &str = "kube_client::client=off";

/// A level that is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{from}: {value:?} is not a log level: use error, warn, info, debug, trace or off, \
     or directives such as info,kubewright_runtime=debug"
)]
pub struct LevelError {
    from: String,
    value: String,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people: one line, coloured on a terminal unless `NO_COLOR` is set.
    #[default]
    Human,
    /// For machines: one JSON object a line.
    Json,
}

/// Flags for logging; flatten them into a program's own.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LogArgs {
    /// What to log: error, warn, info, debug, trace or off, or directives such as info,kubewright_runtime=debug
    /// [default: the environment variable KUBEWRIGHT_LOG, then RUST_LOG, then info]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,

    /// How to write log lines
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
}

impl LogArgs {
    /// Starts logging for the whole process. If something else has done so before, that stays and this does nothing.
    ///
    /// # Errors
    /// [`LevelError`] if the flag, or the variable that counts, holds no level.
    pub fn init(&self) -> Result<(), LevelError> {
        let filter = self.filter(|name| env::var(name).ok())?;
        let colours = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
        let done = match self.log_format {
            LogFormat::Human => start(filter, lines.with_ansi(colours)),
            LogFormat::Json => start(filter, lines.json().flatten_event(true)),
        };
        if let Err(error) = done {
            tracing::debug!(%error, "logging was set up before");
        }
        Ok(())
    }

    fn filter(&self, environment: impl Fn(&str) -> Option<String>) -> Result<Targets, LevelError> {
        let from_environment = || {
            let found = ENVIRONMENT.iter().map(|name| (*name, environment(name)));
            found.filter_map(|(name, value)| Some((name, value.filter(|value| !value.trim().is_empty())?))).next()
        };
        let (from, value) = match &self.log_level {
            Some(value) => ("--log-level", value.clone()),
            None => from_environment().unwrap_or(("the default", "info".into())),
        };
        let error = || LevelError { from: from.into(), value: value.clone() };
        let mut directives = value.trim().to_owned();
        if !directives.contains(['=', ',']) {
            // A lone word that is no level would be taken for the name of a module, and the typing error go unseen.
            directives.parse::<LevelFilter>().map_err(|_| error())?;
            directives = format!("{directives},{QUIET}");
        }
        directives.parse().map_err(|_| error())
    }
}

/// Makes log lines of what the filter lets pass.
#[cfg(not(feature = "opentelemetry"))]
fn start<L>(filter: Targets, lines: L) -> Result<(), TryInitError>
where
    L: Layer<Layered<Targets, Registry>> + Send + Sync,
{
    registry().with(filter).with(lines).try_init()
}

/// Makes log lines of what the filter lets pass, and sends spans, whatever is logged.
#[cfg(feature = "opentelemetry")]
fn start<L>(filter: Targets, lines: L) -> Result<(), TryInitError>
where
    L: Layer<Registry> + Send + Sync,
{
    let (layer, failure) = match crate::telemetry::layer() {
        Ok(layer) => (layer, None),
        Err(error) => (None, Some(error)),
    };
    registry().with(lines.with_filter(filter)).with(layer).try_init()?;
    if let Some(error) = failure {
        tracing::error!(%error, "no spans are sent");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(flag: Option<&str>, environment: &[(&str, &str)]) -> Result<String, String> {
        let args = LogArgs { log_level: flag.map(Into::into), ..LogArgs::default() };
        let lookup =
            |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        args.filter(lookup).map(|filter| filter.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn precedence() {
        let both = [("RUST_LOG", "warn"), ("KUBEWRIGHT_LOG", "debug")];
        assert_eq!(filter(None, &[]).unwrap(), "kube_client::client=off,info");
        assert_eq!(filter(None, &both[..1]).unwrap(), "kube_client::client=off,warn");
        assert_eq!(filter(None, &both).unwrap(), "kube_client::client=off,debug");
        assert_eq!(
            filter(None, &[("KUBEWRIGHT_LOG", ""), ("RUST_LOG", "warn")]).unwrap(),
            "kube_client::client=off,warn"
        );
        assert_eq!(filter(Some("trace"), &both).unwrap(), "kube_client::client=off,trace");
        assert_eq!(filter(Some("info,kube=debug"), &both).unwrap(), "kube=debug,info");
    }

    #[test]
    fn a_word_that_is_no_level_is_refused_with_where_it_came_from() {
        assert!(
            filter(Some("verbose"), &[]).unwrap_err().starts_with("--log-level: \"verbose\" is not a log level: use")
        );
        assert!(filter(None, &[("RUST_LOG", "loud")]).unwrap_err().starts_with("RUST_LOG: \"loud\" is not"));
        assert!(filter(Some("kube=loud"), &[]).is_err());
    }
}
