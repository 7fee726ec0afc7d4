//! `kubewright_shard_*`: the distribution of keys among replicas.

use prometheus::{Gauge, IntCounter, IntGauge, Opts, Registry};

use super::{Metrics, add};

/// The metrics of one replica of a shard group.
#[derive(Clone, Debug)]
pub(crate) struct ShardMetrics {
    members: IntGauge,
    fraction: Gauge,
    rebalances: IntCounter,
}

impl Metrics {
    /// Registers the families. Call it once for each registry. `name` is the name of the group.
    pub(crate) fn shards(&self, name: &str) -> ShardMetrics {
        ShardMetrics::new(self.registry(), name)
    }
}

impl ShardMetrics {
    fn new(registry: &Registry, name: &str) -> Self {
        let options = |family: &str, help: &str| Opts::new(family, help).const_label("name", name);
        let members = options("kubewright_shard_members", "Replicas that divide the keys, as this one sees it.");
        let fraction =
            options("kubewright_shard_fraction", "Part of all keys that this replica works on, from 0 to 1.");
        let rebalances = options("kubewright_shard_rebalances_total", "How often replicas came or went.");
        let members = IntGauge::with_opts(members).expect("constant names are valid");
        let fraction = Gauge::with_opts(fraction).expect("constant names are valid");
        let rebalances = IntCounter::with_opts(rebalances).expect("constant names are valid");
        add(registry, members.clone());
        add(registry, fraction.clone());
        add(registry, rebalances.clone());
        Self { members, fraction, rebalances }
    }

    pub(crate) fn set(&self, members: usize, fraction: f64, rebalances: u64) {
        self.members.set(i64::try_from(members).unwrap_or(i64::MAX));
        self.fraction.set(fraction);
        self.rebalances.inc_by(rebalances.saturating_sub(self.rebalances.get()));
    }
}
