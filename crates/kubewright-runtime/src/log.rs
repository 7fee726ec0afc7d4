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

/// Libraries that a plain level of `debug` or `trace` leaves at `info`: those below the runtime that log. They are
/// named, and not the operator's own crates, whose names aren't known here.
const LIBRARIES: [&str; 23] = [
    "axum",
    "h2",
    "hyper",
    "hyper_rustls",
    "hyper_timeout",
    "hyper_util",
    "kube_client",
    "kube_core",
    "kube_runtime",
    "log",
    "mio",
    "opentelemetry",
    "opentelemetry_http",
    "opentelemetry_otlp",
    "opentelemetry_sdk",
    "pprof",
    "reqwest",
    "rustls",
    "rustls_platform_verifier",
    "tokio_tungstenite",
    "tower",
    "tower_http",
    "tungstenite",
];

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
    /// Log level: error, warn, info, debug, trace or off, or directives such as info,kubewright_runtime=debug. A level
    /// applies to the operator and kubewright; debug and trace leave the libraries for requests, such as hyper and
    /// rustls, at info. Directives apply as they are written [default: the environment variable KUBEWRIGHT_LOG, then
    /// RUST_LOG, then info]
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
            let level = directives.parse::<LevelFilter>().map_err(|_| error())?;
            directives.push(',');
            directives.push_str(QUIET);
            if level > LevelFilter::INFO {
                // A target without colons would also be the beginning of other names: `tower` that of `tower_of_pods`.
                directives.extend(LIBRARIES.iter().flat_map(|name| [",", name, "::=info"]));
            }
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
    use tracing::Level;

    use super::*;

    fn filter(flag: Option<&str>, environment: &[(&str, &str)]) -> Result<String, String> {
        let args = LogArgs { log_level: flag.map(Into::into), ..LogArgs::default() };
        let lookup =
            |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        args.filter(lookup).map(|filter| filter.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_flag_takes_precedence_over_the_variables() {
        let both = [("RUST_LOG", "warn"), ("KUBEWRIGHT_LOG", "error")];
        assert_eq!(filter(None, &[]).unwrap(), "kube_client::client=off,info");
        assert_eq!(filter(None, &both[..1]).unwrap(), "kube_client::client=off,warn");
        assert_eq!(filter(None, &both).unwrap(), "kube_client::client=off,error");
        assert_eq!(
            filter(None, &[("KUBEWRIGHT_LOG", ""), ("RUST_LOG", "warn")]).unwrap(),
            "kube_client::client=off,warn"
        );
        assert_eq!(filter(Some("off"), &both).unwrap(), "kube_client::client=off,off");
        assert_eq!(filter(Some("info,kube=debug"), &both).unwrap(), "kube=debug,info");
    }

    #[test]
    fn a_plain_level_is_not_that_of_libraries() {
        let is_logged = |level: &str, target: &str, of: Level| {
            let args = LogArgs { log_level: Some(level.into()), ..LogArgs::default() };
            args.filter(|_| None).unwrap().would_enable(target, &of)
        };
        for level in [Level::DEBUG, Level::TRACE] {
            let name = level.to_string();
            for target in ["kubewright_runtime::queue", "podset_operator", "tower_of_pods::controller", "kubectl_view"]
            {
                assert!(is_logged(&name, target, level), "{target}");
            }
            for target in ["rustls::client::hs", "hyper_util::client::legacy", "tower::buffer::worker"] {
                assert!(!is_logged(&name, target, Level::DEBUG), "{target}");
                assert!(is_logged(&name, target, Level::INFO), "{target}");
                // A filter with targets stays as it is.
                assert!(is_logged(&format!("{name},podset_operator=info"), target, level), "{target}");
            }
            assert!(!is_logged(&name, "kube_client::client", Level::ERROR));
        }
        for target in ["rustls::client::hs", "podset_operator"] {
            assert!(is_logged("error", target, Level::ERROR) && !is_logged("error", target, Level::WARN), "{target}");
        }
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
