//! The cache's metrics.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

/// The metric families of a manager's cache.
#[derive(Clone, Debug)]
pub(crate) struct CacheFamilies {
    undecodable: IntCounterVec,
    interrupted: IntCounterVec,
}

impl CacheFamilies {
    /// Registers the families, unless an earlier manager with the same registry has done so.
    pub(crate) fn new(registry: &Registry) -> Self {
        let counters = |name: &str, help: &str| {
            let family = IntCounterVec::new(Opts::new(name, help), &["kind"]).expect("constant names are valid");
            // With two managers on one registry, the later one's counters are not exported.
            let _ = registry.register(Box::new(family.clone()));
            family
        };
        Self {
            undecodable: counters(
                "kubewright_cache_undecodable_total",
                "Received object states that could not be decoded and were ignored.",
            ),
            interrupted: counters("kubewright_cache_watch_errors_total", "Failed lists and watches. They are retried."),
        }
    }

    /// Drops the counters of a kind.
    pub(super) fn forget(&self, kind: &str) {
        for family in [&self.undecodable, &self.interrupted] {
            // Fails if there are none.
            let _ = family.remove_label_values(&[kind]);
        }
    }

    /// Returns the counters of one kind, labelled with its name in kubectl.
    pub(super) fn kind(&self, kind: &str) -> CacheMetrics {
        let [undecodable, interrupted] =
            [&self.undecodable, &self.interrupted].map(|family| family.with_label_values(&[kind]));
        CacheMetrics { undecodable, interrupted }
    }
}

/// The counters of one kind.
#[derive(Clone, Debug)]
pub(super) struct CacheMetrics {
    undecodable: IntCounter,
    interrupted: IntCounter,
}

impl CacheMetrics {
    pub(super) fn undecodable(&self) {
        self.undecodable.inc();
    }

    pub(super) fn interrupted(&self) {
        self.interrupted.inc();
    }
}
