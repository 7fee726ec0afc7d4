//! The audit log of a cluster, by the flags of kube-apiserver.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use kubewright_cluster::{AuditLog, AuditPolicy};
use kubewright_manifests::yaml;
use serde_json::json;

// Not a doc comment: clap would show it as the help of the command.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct AuditOptions {
    /// File to append the audit log to, one event of audit.k8s.io/v1 a line, readable only by you; - is standard output
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,

    /// Audit policy that selects what is logged [default: each request without its objects]
    #[arg(long, value_name = "FILE", requires = "audit_log_path")]
    audit_policy_file: Option<PathBuf>,
}

impl AuditOptions {
    /// Opens the log; `None` if there is no path for it.
    pub(crate) fn open(&self) -> Result<Option<AuditLog>> {
        let Some(path) = &self.audit_log_path else { return Ok(None) };
        let policy = match &self.audit_policy_file {
            Some(file) => read_policy(file)?,
            None => AuditPolicy::from_value(json!({
                "apiVersion": "audit.k8s.io/v1",
                "kind": "Policy",
                "omitStages": ["RequestReceived"],
                "rules": [{"level": "Metadata"}],
            }))?,
        };
        open(path, policy).map(Some)
    }
}

/// Opens a log.
pub(crate) fn open(path: &Path, policy: AuditPolicy) -> Result<AuditLog> {
    if path == Path::new("-") {
        return Ok(AuditLog::new(policy, std::io::stdout()));
    }
    let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    let file = opened.with_context(|| format!("open the audit log {}", path.display()))?;
    Ok(AuditLog::new(policy, file))
}

/// Reads a policy.
pub(crate) fn read_policy(path: &Path) -> Result<AuditPolicy> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let documents = yaml::read(&text).with_context(|| format!("read {}", path.display()))?;
    let [policy] = <[_; 1]>::try_from(documents)
        .or_else(|documents| bail!("{} has {} documents instead of a policy", path.display(), documents.len()))?;
    AuditPolicy::from_value(policy).with_context(|| format!("read {}", path.display()))
}
