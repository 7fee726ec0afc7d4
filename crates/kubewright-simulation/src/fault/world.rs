//! Faults of the world around the operator: pods, the node, the namespace, and the clock.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// How long pods fail, from the fault on.
pub(crate) const FAILING: Duration = Duration::from_secs(600);
/// How long pods aren't ready.
pub(crate) const UNREADY: Duration = Duration::from_secs(300);
/// How long there is no node.
pub(crate) const NODELESS: Duration = Duration::from_secs(300);
/// How long the quota is full.
pub(crate) const FULL: Duration = Duration::from_secs(600);
/// How long a webhook is unavailable.
pub(crate) const UNAVAILABLE: Duration = Duration::from_secs(600);

/// Something that happens to pods, the node, the namespace, or the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WorldFault {
    /// For ten minutes, all pods fail: in the first two and a half as soon as they run, at last within sixteen seconds.
    PodsFail,
    /// The first pod with a controller that runs is evicted, which deletes it.
    PodEvicted,
    /// For five minutes, the pods that run aren't ready.
    PodsUnready,
    /// The clock goes forward by an hour, five minutes after the user's step.
    ClockAhead,
    /// The clock goes back by an hour, five minutes after the user's step.
    ClockBack,
    /// The node vanishes: its pods are gone at once. For five minutes new pods find no node; then there is one again.
    NodeLost,
    /// For ten minutes, a resource quota of the namespace `default` allows no more objects than there are, of any kind
    /// but those that the operator declares. The built-in controllers meet it too.
    QuotaFull,
    /// The user deletes the namespace `default`: everything in it is deleted, and the operator can't create anything in
    /// it any more.
    NamespaceDeleted,
    /// For ten minutes, the webhooks of the operator don't answer anyone, so that their failure policy decides. If it
    /// has none, a webhook for all kinds doesn't answer, so that the API server refuses what the operator creates and
    /// changes; deletions and statuses aren't affected then, and neither are other clients.
    WebhookUnavailable,
}

impl WorldFault {
    /// All faults of the world.
    pub const ALL: [Self; 9] = [
        Self::ClockBack,
        Self::ClockAhead,
        Self::PodsFail,
        Self::PodEvicted,
        Self::PodsUnready,
        Self::NodeLost,
        Self::QuotaFull,
        Self::NamespaceDeleted,
        Self::WebhookUnavailable,
    ];

    /// Returns whether the fault needs pods.
    pub(crate) fn is_of_pods(self) -> bool {
        matches!(self, Self::PodsFail | Self::PodEvicted | Self::PodsUnready | Self::NodeLost)
    }

    /// Returns whether the fault is one of what surrounds pods: the node, and what may be created in a namespace.
    pub(crate) fn is_of_namespace(self) -> bool {
        matches!(self, Self::NodeLost | Self::QuotaFull | Self::NamespaceDeleted | Self::WebhookUnavailable)
    }

    /// Returns whether the fault is one of the clock.
    pub(crate) fn is_of_clock(self) -> bool {
        matches!(self, Self::ClockAhead | Self::ClockBack)
    }
}

impl fmt::Display for WorldFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PodsFail => "for ten minutes, all pods fail soon after they run",
            Self::PodEvicted => "a pod is evicted",
            Self::PodsUnready => "for five minutes, the pods that run aren't ready",
            Self::ClockAhead => "the clock goes forward by an hour, five minutes later",
            Self::ClockBack => "the clock goes back by an hour, five minutes later",
            Self::NodeLost => "the node vanishes with its pods, and for five minutes there is no other",
            Self::QuotaFull => "for ten minutes, a quota allows no more objects",
            Self::NamespaceDeleted => "the namespace is deleted",
            Self::WebhookUnavailable => "for ten minutes, no webhook answers",
        })
    }
}
