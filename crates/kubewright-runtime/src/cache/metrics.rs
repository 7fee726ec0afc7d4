//! What the cache counts.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

/// The families of a manager's cache.
#[derive(Clone, Debug)]
pub(crate) struct CacheFamilies {
    undecodable: IntCounterVec,
    interrupted: IntCounterVec,
}

impl CacheFamilies {
    /// Registers the families, unless an earlier manager with the same registry has.
    pub(crate) fn new(registry: &Registry) -> Self {
        let counters = |name: &str, help: &str| {
            let family = IntCounterVec::new(Opts::new(name, help), &["kind"]).expect("constant names are valid");
            // Two managers with one registry: the later one's counts are its own, and not shown.
            let _ = registry.register(Box::new(family.clone()));
            family
        };
        Self {
            undecodable: counters(
                "kubewright_cache_undecodable_total",
                "Objects that are not as their type says, and were left out of the cache, each time they were seen.",
            ),
            interrupted: counters(
                "kubewright_cache_watch_errors_total",
                "Lists and watches that failed; they are tried again.",
            ),
        }
    }

    /// The counters of one kind, named as `kubectl` names it.
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
