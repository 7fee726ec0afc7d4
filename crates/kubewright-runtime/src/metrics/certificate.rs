//! `certwatcher_*`: reads of the serving certificates of webhooks and metrics.

use prometheus::{IntCounter, Registry};

use super::counter;

/// The metrics of all serving certificates together. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct CertificateMetrics {
    total: IntCounter,
    errors: IntCounter,
}

impl CertificateMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let (total, errors) = ("certwatcher_read_certificate_total", "certwatcher_read_certificate_errors_total");
        Self {
            total: counter(registry, total, "Number of times a serving certificate was read."),
            errors: counter(registry, errors, "Number of times a serving certificate could not be read."),
        }
    }

    /// Counts a read of a certificate.
    pub(crate) fn read_certificate(&self, succeeded: bool) {
        self.total.inc();
        if !succeeded {
            self.errors.inc();
        }
    }
}
