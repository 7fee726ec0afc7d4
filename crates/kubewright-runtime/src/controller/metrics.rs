//! The metrics of the read-your-writes barrier.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

/// The metric families of a manager's controllers.
#[derive(Clone, Debug)]
pub(crate) struct BarrierFamilies {
    waits: IntCounterVec,
    timeouts: IntCounterVec,
}

impl BarrierFamilies {
    /// Registers the families, unless an earlier manager with the same registry has done so.
    pub(crate) fn new(registry: &Registry) -> Self {
        let counters = |name: &str, help: &str| {
            let family = IntCounterVec::new(Opts::new(name, help), &["controller"]).expect("constant names are valid");
            // With two managers on one registry, the later one's counters are not exported.
            let _ = registry.register(Box::new(family.clone()));
            family
        };
        Self {
            waits: counters(
                "kubewright_read_your_writes_waits_total",
                "Reconciles that waited until the cache showed the key's last writes.",
            ),
            timeouts: counters(
                "kubewright_read_your_writes_timeouts_total",
                "Reconciles that read live because the cache did not show the key's last writes in time.",
            ),
        }
    }

    /// Drops the counters of a controller.
    pub(super) fn forget(&self, controller: &str) {
        for family in [&self.waits, &self.timeouts] {
            // Fails if there are none.
            let _ = family.remove_label_values(&[controller]);
        }
    }

    pub(super) fn controller(&self, controller: &str) -> BarrierMetrics {
        let [waits, timeouts] = [&self.waits, &self.timeouts].map(|family| family.with_label_values(&[controller]));
        BarrierMetrics { waits, timeouts }
    }
}

/// The counters of one controller.
#[derive(Clone, Debug)]
pub(super) struct BarrierMetrics {
    waits: IntCounter,
    timeouts: IntCounter,
}

impl BarrierMetrics {
    pub(super) fn waited(&self) {
        self.waits.inc();
    }

    pub(super) fn timed_out(&self) {
        self.timeouts.inc();
    }
}
