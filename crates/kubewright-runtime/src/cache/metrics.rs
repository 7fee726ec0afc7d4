//! The cache's metrics.

use std::sync::Arc;

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

/// The metric families of a manager's cache.
#[derive(Clone, Debug)]
pub(crate) struct CacheFamilies {
    undecodable: IntCounterVec,
    interrupted: IntCounterVec,
    /// The name of the cluster, unless it is the manager's own.
    cluster: Option<Arc<str>>,
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
            cluster: None,
        }
    }

    /// Returns the families for another cluster, which is part of the label.
    pub(crate) fn of_cluster(&self, cluster: &str) -> Self {
        Self { cluster: Some(cluster.into()), ..self.clone() }
    }

    pub(super) fn is_of_another_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    fn label(&self, kind: &str) -> String {
        match &self.cluster {
            None => kind.into(),
            Some(cluster) => format!("{kind}@{cluster}"),
        }
    }

    /// Drops the counters of a kind.
    pub(super) fn forget(&self, kind: &str) {
        for family in [&self.undecodable, &self.interrupted] {
            // Fails if there are none.
            let _ = family.remove_label_values(&[self.label(kind).as_str()]);
        }
    }

    /// Returns the counters of one kind, labelled with its name in kubectl.
    pub(super) fn kind(&self, kind: &str) -> CacheMetrics {
        let [undecodable, interrupted] =
            [&self.undecodable, &self.interrupted].map(|family| family.with_label_values(&[self.label(kind).as_str()]));
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
