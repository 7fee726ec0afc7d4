//! Logging with `tracing` to standard error, as text or JSON.
//!
//! It is set up once per process, from flags and environment variables. A subscriber that the program has set is kept.
//! With the cargo feature `opentelemetry`, the export of spans starts too, if it is configured in the environment.

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

/// The environment variables that set the level without a flag, in order of precedence.
pub const ENVIRONMENT: [&str; 2] = ["KUBEWRIGHT_LOG", "RUST_LOG"];

/// The directive added to a plain level: callers log failed requests with more context than kube's client.
const QUIET: &str = "kube_client::client=off";

/// An invalid log level.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{from}: invalid log level {value:?}: use error, warn, info, debug, trace or off, \
     or directives such as info,kubewright_runtime=debug"
)]
pub struct LevelError {
    from: String,
    value: String,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text, coloured on a terminal unless `NO_COLOR` is set.
    #[default]
    Human,
    /// One JSON object per line.
    Json,
}

/// The flags of logging. Flatten them into those of a program.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LogArgs {
    /// Log level: error, warn, info, debug, trace or off, or directives such as info,kubewright_runtime=debug
    /// [default: the environment variable KUBEWRIGHT_LOG, then RUST_LOG, then info]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,

    /// Format of log lines
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
}

impl LogArgs {
    /// Sets up logging for the process. It does nothing if there is a subscriber already.
    ///
    /// # Errors
    /// [`LevelError`] if the flag or variable contains no valid level.
    pub fn init(&self) -> Result<(), LevelError> {
        let filter = self.filter(|name| env::var(name).ok())?;
        let colours = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
        let done = match self.log_format {
            LogFormat::Human => start(filter, lines.with_ansi(colours)),
            LogFormat::Json => start(filter, lines.json().flatten_event(true)),
        };
        if let Err(error) = done {
            tracing::debug!(%error, "logging is already set up");
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
            // A word that is not a level would be parsed as a module name, and a misspelt level would go unnoticed.
            directives.parse::<LevelFilter>().map_err(|_| error())?;
            directives = format!("{directives},{QUIET}");
        }
        directives.parse().map_err(|_| error())
    }
}

/// Sets a subscriber that logs the events that pass the filter.
#[cfg(not(feature = "opentelemetry"))]
fn start<L>(filter: Targets, lines: L) -> Result<(), TryInitError>
where
    L: Layer<Layered<Targets, Registry>> + Send + Sync,
{
    registry().with(filter).with(lines).try_init()
}

/// Sets a subscriber that logs the events that pass the filter and exports all spans.
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
        tracing::error!(%error, "can't export spans");
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
    fn the_flag_takes_precedence_over_the_variables() {
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
    fn an_invalid_level_is_an_error_that_names_its_source() {
        assert!(
            filter(Some("verbose"), &[]).unwrap_err().starts_with("--log-level: invalid log level \"verbose\": use")
        );
        assert!(filter(None, &[("RUST_LOG", "loud")]).unwrap_err().starts_with("RUST_LOG: invalid log level \"loud\""));
        assert!(filter(Some("kube=loud"), &[]).is_err());
    }
}
