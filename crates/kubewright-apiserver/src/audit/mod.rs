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
    sinks: Vec<Box<dyn AuditSink>>,
}

/// Where the events of an [`AuditLog`] go. A mutex around a [`Write`] is one: it gets each event as one line, by one
/// call of [`Write::write_all`]. An event that can't be written is lost, and an error is logged.
pub trait AuditSink: Send + Sync + 'static {
    /// Takes an event, an `Event` of `audit.k8s.io/v1` in JSON. The request doesn't go on before it returns.
    fn write(&self, event: &[u8]);
}

impl<W: Write + Send + 'static> AuditSink for Mutex<W> {
    fn write(&self, event: &[u8]) {
        if let Err(error) = self.lock().write_all(&[event, b"\n"].concat()) {
            tracing::error!(%error, "an event couldn't be written to the audit log");
        }
    }
}

impl AuditLog {
    /// Creates a log that writes each event as one line of JSON before the request goes on, as kube-apiserver does with
    /// `--audit-log-path`. At the levels `Request` and `RequestResponse` it contains whole objects, also Secrets and
    /// tokens.
    pub fn new(policy: AuditPolicy, sink: impl Write + Send + 'static) -> Self {
        Self::with_sinks(policy, vec![Box::new(Mutex::new(sink))])
    }

    /// Creates a log whose events go to each of the sinks.
    pub fn with_sinks(policy: AuditPolicy, sinks: Vec<Box<dyn AuditSink>>) -> Self {
        Self { policy, sinks }
    }

    fn write(&self, event: &[u8]) {
        for sink in &self.sinks {
            sink.write(event);
        }
    }
}

impl fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditLog").field("policy", &self.policy).finish_non_exhaustive()
    }
}
