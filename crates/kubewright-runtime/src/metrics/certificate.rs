//! `certwatcher_*`: how the serving certificates, of webhooks and of metrics, are read.

use prometheus::{IntCounter, Registry};

use super::counter;

/// The metrics of all serving certificates together. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct CertificateMetrics {
    total: IntCounter,
    errors: IntCounter,
}

impl CertificateMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let (total, errors) = ("certwatcher_read_certificate_total", "certwatcher_read_certificate_errors_total");
        Self {
            total: counter(registry, total, "How often a serving certificate was read anew."),
            errors: counter(registry, errors, "How often a serving certificate could not be read."),
        }
    }

    /// A certificate was read, or couldn't be.
    pub(crate) fn read_certificate(&self, succeeded: bool) {
        self.total.inc();
        if !succeeded {
            self.errors.inc();
        }
    }
}
