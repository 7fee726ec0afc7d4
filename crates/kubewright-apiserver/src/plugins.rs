//! The admission plugins of Kubernetes that can be turned off.

use std::collections::BTreeSet;

/// An admission plugin that is on by default, as in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AdmissionPlugin {
    /// Gives new ingresses the default class.
    DefaultIngressClass,
    /// Gives new claims of volumes the default class.
    DefaultStorageClass,
    /// Adds tolerations of failing nodes to pods.
    DefaultTolerationSeconds,
    /// Gives pods the default resources of limit ranges, and enforces their limits.
    LimitRanger,
    /// Forbids claims of volumes to grow unless their class allows it.
    PersistentVolumeClaimResize,
    /// Enforces the Pod Security Standards.
    PodSecurity,
    /// Gives pods the priorities of their classes, and allows one default class.
    Priority,
    /// Enforces quotas.
    ResourceQuota,
    /// Gives pods the overhead and the nodes of their runtime class.
    RuntimeClass,
    /// Taints new nodes as not ready.
    TaintNodesByCondition,
}

impl AdmissionPlugin {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::DefaultIngressClass,
        Self::DefaultStorageClass,
        Self::DefaultTolerationSeconds,
        Self::LimitRanger,
        Self::PersistentVolumeClaimResize,
        Self::PodSecurity,
        Self::Priority,
        Self::ResourceQuota,
        Self::RuntimeClass,
        Self::TaintNodesByCondition,
    ];

    /// Returns the name in the flags of kube-apiserver.
    pub fn name(self) -> &'static str {
        match self {
            Self::DefaultIngressClass => "DefaultIngressClass",
            Self::DefaultStorageClass => "DefaultStorageClass",
            Self::DefaultTolerationSeconds => "DefaultTolerationSeconds",
            Self::LimitRanger => "LimitRanger",
            Self::PersistentVolumeClaimResize => "PersistentVolumeClaimResize",
            Self::PodSecurity => "PodSecurity",
            Self::Priority => "Priority",
            Self::ResourceQuota => "ResourceQuota",
            Self::RuntimeClass => "RuntimeClass",
            Self::TaintNodesByCondition => "TaintNodesByCondition",
        }
    }

    /// Returns the plugin with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.name() == name)
    }
}

/// The plugins that are on: all that weren't turned off.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plugins {
    off: BTreeSet<AdmissionPlugin>,
}

impl Plugins {
    /// Turns a plugin off.
    pub(crate) fn turn_off(&mut self, plugin: AdmissionPlugin) {
        self.off.insert(plugin);
    }

    /// Returns whether a plugin is on.
    pub(crate) fn has(&self, plugin: AdmissionPlugin) -> bool {
        !self.off.contains(&plugin)
    }
}
