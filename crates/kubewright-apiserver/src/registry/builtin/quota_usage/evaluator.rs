//! The kinds whose objects quotas count, and the names of what they use.

use jiff::Timestamp;
use serde_json::Value;

use super::{pod, usage};
use crate::amounts::{Amount, Amounts};

/// The prefix of the number of the objects of any kind.
const COUNT: &str = "count/";
/// The kinds that have a name without a prefix for their number.
const ALIASES: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];
const OF_SERVICES: [&str; 3] = ["services", "services.loadbalancers", "services.nodeports"];
pub(super) const OF_CLAIMS: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
/// The separator between a storage class and what its claims use.
pub(super) const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
/// The end of the name of a device class's devices.
pub(super) const DEVICES_OF_CLASS: &str = ".deviceclass.resource.k8s.io/devices";

/// Measures what the objects of one kind use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Evaluator<'a> {
    group: &'a str,
    plural: &'a str,
}

impl<'a> Evaluator<'a> {
    const PODS: Evaluator<'static> = Evaluator { group: "", plural: "pods" };
    const SERVICES: Evaluator<'static> = Evaluator { group: "", plural: "services" };
    const CLAIMS: Evaluator<'static> = Evaluator { group: "", plural: "persistentvolumeclaims" };
    const DEVICE_CLAIMS: Evaluator<'static> = Evaluator { group: "resource.k8s.io", plural: "resourceclaims" };

    /// Returns the evaluator of a resource, given its group and plural name. Events have none.
    pub fn of(group: &'a str, plural: &'a str) -> Option<Self> {
        let is_ignored = plural == "events" && matches!(group, "" | "events.k8s.io");
        (!is_ignored).then_some(Self { group, plural })
    }

    /// Returns the evaluator of what a quota limits under a name, such as `requests.cpu` or `count/jobs.batch`. The
    /// kind of the objects need not exist.
    pub fn of_name(name: &'a str) -> Option<Self> {
        if let Some(counted) = name.strip_prefix(COUNT) {
            let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
            return Self::of(group, plural);
        }
        if ALIASES.contains(&name) {
            return Self::of("", name);
        }
        if OF_SERVICES.contains(&name) {
            return Some(Self::SERVICES);
        }
        if OF_CLAIMS.contains(&name) || name.split_once(OF_CLASS).is_some_and(|(_, rest)| OF_CLAIMS.contains(&rest)) {
            return Some(Self::CLAIMS);
        }
        if name.ends_with(DEVICES_OF_CLASS) {
            return Some(Self::DEVICE_CLAIMS);
        }
        pod::is_used_by_pods(name).then_some(Self::PODS)
    }

    /// Returns the group; empty for the core group.
    pub fn group(self) -> &'a str {
        self.group
    }

    /// Returns the plural name of the resource.
    pub fn plural(self) -> &'a str {
        self.plural
    }

    /// Returns whether the objects use what a quota limits under a name.
    pub fn counts(self, name: &str) -> bool {
        Evaluator::of_name(name)
            .is_some_and(|evaluator| (evaluator.group, evaluator.plural) == (self.group, self.plural))
    }

    /// Returns whether the content of objects determines what they use. Of others, only the number counts.
    pub fn reads_objects(self) -> bool {
        self.is_pods() || self.is_services() || self.is_claims() || self.is_device_claims()
    }

    pub(super) fn is_pods(self) -> bool {
        self == Self::PODS
    }

    pub(super) fn is_services(self) -> bool {
        self == Self::SERVICES
    }

    pub(super) fn is_claims(self) -> bool {
        self == Self::CLAIMS
    }

    fn is_device_claims(self) -> bool {
        self == Self::DEVICE_CLAIMS
    }

    /// Returns what an object uses.
    pub(super) fn usage(self, object: &Value, now: Timestamp) -> Amounts {
        let mut usage = self.usage_of_number(1);
        usage.extend(match self {
            Self::PODS => pod::usage(object, now),
            Self::SERVICES => usage::of_service(object),
            Self::CLAIMS => usage::of_claim(object),
            Self::DEVICE_CLAIMS => usage::of_device_claim(object),
            _ => Amounts::new(),
        });
        usage
    }

    /// Returns what a number of objects uses, whatever they contain.
    pub(super) fn usage_of_number(self, number: usize) -> Amounts {
        let mut name = format!("{COUNT}{}", self.plural);
        if !self.group.is_empty() {
            name = format!("{name}.{}", self.group);
        }
        let alias = ALIASES.into_iter().find(|alias| self.group.is_empty() && *alias == self.plural);
        let names = [Some(name), alias.map(String::from)].into_iter().flatten();
        names.map(|name| (name, Amount::whole(number))).collect()
    }

    /// Returns whether a write can increase what the object uses. `old` is set on update.
    pub(super) fn handles(self, subresource: &str, old: Option<&Value>, new: &Value) -> bool {
        match (subresource, old) {
            ("", None) => true,
            ("", Some(old)) if self.is_pods() => pod::ends_by_deadline(old) != pod::ends_by_deadline(new),
            ("", Some(_)) => self.is_services() || self.is_claims() || self.is_device_claims(),
            ("resize", Some(_)) => self.is_pods(),
            ("status", Some(_)) => self.is_claims(),
            _ => false,
        }
    }

    /// Returns whether a change of an object can reduce what it uses, so that the quotas of its namespace have to be
    /// calculated again.
    pub fn reduces_usage(self, before: &Value, after: &Value, now: Timestamp) -> bool {
        match self {
            Self::PODS => pod::reduces_usage(before, after, now),
            Self::SERVICES => before["spec"]["type"] != after["spec"]["type"],
            Self::CLAIMS => {
                let status = |claim: &Value| {
                    ["allocatedResources", "currentVolumeAttributesClassName", "modifyVolumeStatus"]
                        .map(|field| claim["status"][field].clone())
                };
                let class = |claim: &Value| claim["spec"]["volumeAttributesClassName"].clone();
                status(before) != status(after) || class(before) != class(after)
            }
            _ => false,
        }
    }
}
