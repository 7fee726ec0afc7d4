//! The audit log of a cluster, by the flags of kube-apiserver.

mod rotation;
mod webhook;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use kubewright_apimachinery::{clock::SharedClock, duration};
use kubewright_cluster::{AuditLog, AuditPolicy, AuditSink};
use kubewright_manifests::yaml;
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::{
    rotation::{RotatingFile, Rotation},
    webhook::{Batch, Mode},
};

pub(crate) use self::webhook::Sending;
use crate::webhook::Webhook;

/// The bytes of a megabyte of `--audit-log-maxsize`.
const MEGABYTE: u64 = 1024 * 1024;

// Not a doc comment: clap would show it as the help of the command.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct AuditOptions {
    /// File to append the audit log to, one event of audit.k8s.io/v1 a line, readable only by you; - is standard output
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,

    /// Size in megabytes at which the file of the audit log is renamed, and a new one begun; 0 for never
    #[arg(long, value_name = "MEGABYTES", default_value_t = 100)]
    audit_log_maxsize: u32,

    /// Number of renamed files of the audit log to keep; 0 for all
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    audit_log_maxbackup: u16,

    /// Days for which renamed files of the audit log are kept; 0 for ever
    #[arg(long, value_name = "DAYS", default_value_t = 366)]
    audit_log_maxage: u16,

    /// Compress renamed files of the audit log by gzip
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false)]
    audit_log_compress: bool,

    /// Kubeconfig with the address of a server that events are sent to
    #[arg(long, value_name = "FILE")]
    audit_webhook_config_file: Option<PathBuf>,

    /// When events are sent to the server: in batches, or each before its request goes on
    #[arg(long, value_enum, default_value_t)]
    audit_webhook_mode: WebhookMode,

    /// Number of events that can wait to be sent; more are lost
    #[arg(long, value_name = "NUMBER", default_value = "10000", value_parser = positive)]
    audit_webhook_batch_buffer_size: usize,

    /// Number of events that are sent at once
    #[arg(long, value_name = "NUMBER", default_value = "400", value_parser = positive)]
    audit_webhook_batch_max_size: usize,

    /// Longest time for which an event waits for others
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = go_duration)]
    audit_webhook_batch_max_wait: Duration,

    /// Pause after the first attempt to send events that fails
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = go_duration)]
    audit_webhook_initial_backoff: Duration,

    /// Audit policy that selects what is logged [default: each request without its objects]
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum WebhookMode {
    #[default]
    Batch,
    Blocking,
}

/// A log, and what still sends its events.
pub(crate) struct OpenLog {
    pub(crate) log: AuditLog,
    pub(crate) sending: Option<Sending>,
}

impl AuditOptions {
    /// Opens the log; `None` if there is nowhere to write it to.
    ///
    /// # Errors
    /// If the policy, the file or the webhook can't be used, or if there is a policy only.
    pub(crate) async fn open(&self, clock: &SharedClock) -> Result<Option<OpenLog>> {
        if !self.has_target() {
            if self.audit_policy_file.is_some() {
                bail!("--audit-policy-file needs --audit-log-path or --audit-webhook-config-file");
            }
            return Ok(None);
        }
        let policy = match &self.audit_policy_file {
            Some(file) => read_policy(file)?,
            None => AuditPolicy::from_value(json!({
                "apiVersion": "audit.k8s.io/v1",
                "kind": "Policy",
                "omitStages": ["RequestReceived"],
                "rules": [{"level": "Metadata"}],
            }))?,
        };
        let mut sinks: Vec<Box<dyn AuditSink>> = Vec::new();
        if let Some(path) = &self.audit_log_path {
            sinks.push(self.open_file(path, clock)?);
        }
        let mut sending = None;
        if let Some(path) = &self.audit_webhook_config_file {
            let mode = match self.audit_webhook_mode {
                WebhookMode::Blocking => Mode::Blocking,
                WebhookMode::Batch => Mode::Batch(Batch {
                    buffer: self.audit_webhook_batch_buffer_size,
                    max_size: self.audit_webhook_batch_max_size,
                    max_wait: self.audit_webhook_batch_max_wait,
                }),
            };
            let webhook = Webhook::open(path.clone(), self.audit_webhook_initial_backoff).await?;
            let (sink, tasks) = webhook::open(webhook, mode);
            sinks.push(Box::new(sink));
            sending = tasks;
        }
        Ok(Some(OpenLog { log: AuditLog::with_sinks(policy, sinks), sending }))
    }

    fn open_file(&self, path: &Path, clock: &SharedClock) -> Result<Box<dyn AuditSink>> {
        if path == Path::new("-") {
            return Ok(Box::new(Mutex::new(std::io::stdout())));
        }
        let rotation = Rotation {
            max_size: u64::from(self.audit_log_maxsize) * MEGABYTE,
            max_backups: self.audit_log_maxbackup.into(),
            max_age: self.audit_log_maxage.into(),
            compresses: self.audit_log_compress,
        };
        Ok(Box::new(Mutex::new(RotatingFile::open(path, rotation, clock.clone())?)))
    }

    fn has_target(&self) -> bool {
        self.audit_log_path.is_some() || self.audit_webhook_config_file.is_some()
    }

    /// Returns whether there is a policy, and somewhere to write what it selects.
    pub(crate) fn is_complete(&self) -> bool {
        self.audit_policy_file.is_some() && self.has_target()
    }
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "use a number greater than 0".into())
}

pub(crate) fn go_duration(text: &str) -> Result<Duration, String> {
    let nanoseconds = duration::parse(text)?;
    u64::try_from(nanoseconds).map(Duration::from_nanos).map_err(|_| "use a duration that isn't negative".into())
}

/// Returns the only document of a file.
pub(crate) fn single_document(text: &str) -> Result<Value> {
    let documents = <[_; 1]>::try_from(yaml::read(text)?);
    let [document] = documents.or_else(|all| bail!("the file has {} documents instead of one", all.len()))?;
    Ok(document)
}

/// Reads a policy.
fn read_policy(path: &Path) -> Result<AuditPolicy> {
    let read = || anyhow::Ok(AuditPolicy::from_value(single_document(&fs::read_to_string(path)?)?)?);
    read().with_context(|| format!("read {}", path.display()))
}
