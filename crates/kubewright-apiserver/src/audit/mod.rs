//! The audit log: a record of requests, as a policy selects them
//! (<https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/>).
//!
//! [`policy`] decides what is recorded of a request, [`record`] collects it while the request is handled, and [`event`]
//! is its form in the log. A server without a log spends nothing on it.

mod event;
mod policy;
mod record;

use std::{fmt, io::Write};

use parking_lot::Mutex;

pub use self::policy::{AuditPolicy, AuditPolicyError};
pub(crate) use self::record::{AuditContext, AuditedRequest};

/// An audit log: a policy, and where the events go.
pub struct AuditLog {
    policy: AuditPolicy,
    sink: Mutex<Box<dyn Write + Send>>,
}

impl AuditLog {
    /// Creates a log that writes each event as one line of JSON (`Event` of `audit.k8s.io/v1`), with one call of
    /// [`Write::write_all`], before the request goes on, as kube-apiserver does with `--audit-log-path`. At the levels
    /// `Request` and `RequestResponse` it contains whole objects, also Secrets and tokens. An event that can't be
    /// written is lost, and an error is logged.
    pub fn new(policy: AuditPolicy, sink: impl Write + Send + 'static) -> Self {
        Self { policy, sink: Mutex::new(Box::new(sink)) }
    }

    fn write(&self, mut line: Vec<u8>) {
        line.push(b'\n');
        if let Err(error) = self.sink.lock().write_all(&line) {
            tracing::error!(%error, "an event couldn't be written to the audit log");
        }
    }
}

impl fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditLog").field("policy", &self.policy).finish_non_exhaustive()
    }
}
