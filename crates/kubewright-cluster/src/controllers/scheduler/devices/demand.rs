//! What the claims of a pod ask for. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use kubewright_apimachinery::{cel::DeviceSelector, quantity::Quantity};
use serde_json::Value;

use crate::controllers::{
    device_taint_eviction::tolerates,
    value::{list, text},
};

/// The identity of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeviceId<'a> {
    pub(super) driver: &'a str,
    pub(super) pool: &'a str,
    pub(super) device: &'a str,
}

impl<'a> DeviceId<'a> {
    /// Returns the device of a result of an allocation.
    pub(super) fn of(result: &'a Value) -> Self {
        Self { driver: text(result, "/driver"), pool: text(result, "/pool"), device: text(result, "/device") }
    }
}

impl fmt::Display for DeviceId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// The claims of a pod that have no devices yet, and the devices that others have.
#[derive(Debug)]
pub(in crate::controllers::scheduler) struct Demand<'a> {
    pub(super) claims: Vec<ClaimDemand<'a>>,
    pub(super) in_use: InUse<'a>,
}

/// The devices of allocations. Administrators' access leaves them free.
#[derive(Debug, Default)]
pub(super) struct InUse<'a> {
    /// Devices that only one claim has.
    exclusive: BTreeSet<DeviceId<'a>>,
    /// Devices that several claims can have.
    shared: BTreeSet<DeviceId<'a>>,
    /// How much of their capacities is consumed.
    consumed: BTreeMap<DeviceId<'a>, BTreeMap<&'a str, Quantity>>,
}

impl<'a> InUse<'a> {
    /// Returns the devices of these allocations.
    pub(super) fn of(allocations: impl Iterator<Item = &'a Value>) -> Self {
        let mut in_use = Self::default();
        for result in allocations.flat_map(|allocation| list(allocation, "/devices/results")) {
            if result["adminAccess"] != true {
                in_use.add(result);
            }
        }
        in_use
    }

    fn add(&mut self, result: &'a Value) {
        let device = DeviceId::of(result);
        if !result["shareID"].is_string() {
            self.exclusive.insert(device);
            return;
        }
        self.shared.insert(device);
        let Some(amounts) = result["consumedCapacity"].as_object() else { return };
        let consumed = self.consumed.entry(device).or_default();
        for (name, amount) in amounts {
            let sum = consumed.entry(name).or_default();
            *sum = sum.plus(Quantity::read(amount));
        }
    }

    /// Returns whether only one claim has a device.
    pub(super) fn is_exclusive(&self, device: &DeviceId<'_>) -> bool {
        self.exclusive.contains(device)
    }

    /// Returns whether any claim has a device.
    pub(super) fn includes(&self, device: &DeviceId<'_>) -> bool {
        self.is_exclusive(device) || self.shared.contains(device)
    }

    /// Returns how much of the capacities of a shared device is consumed; `None` if nothing is.
    pub(super) fn consumed(&self, device: &DeviceId<'a>) -> Option<&BTreeMap<&'a str, Quantity>> {
        self.consumed.get(device)
    }
}

/// A claim without devices.
#[derive(Debug)]
pub(super) struct ClaimDemand<'a> {
    pub(super) claim: &'a Value,
    pub(super) requests: Vec<RequestDemand<'a>>,
}

/// A request of a claim: one of its alternatives is enough. A request for exact devices has one.
#[derive(Debug)]
pub(super) struct RequestDemand<'a> {
    pub(super) name: &'a str,
    pub(super) alternatives: Vec<Alternative<'a>>,
}

/// The devices that are asked for.
#[derive(Debug)]
pub(super) struct Alternative<'a> {
    /// The name in results: that of the request, or `request/subrequest`.
    pub(super) name: String,
    pub(super) of: &'a Value,
    pub(super) class: Option<&'a Value>,
    selectors: Vec<Selector<'a>>,
}

#[derive(Debug)]
struct Selector<'a> {
    /// The class that it is part of; empty for the claim's own.
    class: &'a str,
    index: usize,
    program: Result<DeviceSelector, String>,
}

impl<'a> ClaimDemand<'a> {
    /// Creates the demand of a claim. `class` finds a device class.
    pub(super) fn new(claim: &'a Value, class: impl Fn(&str) -> Option<&'a Value>) -> Self {
        let request = |request: &'a Value| {
            let name = text(request, "/name");
            let alternatives = match list(request, "/firstAvailable") {
                [] => vec![Alternative::new(name.to_owned(), &request["exactly"], &class)],
                some => {
                    let name = |of: &Value| format!("{name}/{}", text(of, "/name"));
                    some.iter().map(|of| Alternative::new(name(of), of, &class)).collect()
                }
            };
            RequestDemand { name, alternatives }
        };
        Self { claim, requests: list(claim, "/spec/devices/requests").iter().map(request).collect() }
    }

    /// Returns the namespace and name of the claim, as they are in errors.
    pub(super) fn shown(&self) -> String {
        shown(self.claim)
    }
}

impl<'a> RequestDemand<'a> {
    /// Returns whether a list of requests is about one of the alternatives of this one.
    pub(super) fn is_in(&self, requests: &'a Value, alternative: &Alternative<'_>) -> bool {
        let Some(requests) = requests.as_array() else { return false };
        requests.iter().any(|one| one == self.name || *one == *alternative.name)
    }
}

impl<'a> Alternative<'a> {
    fn new(name: String, of: &'a Value, class: &impl Fn(&str) -> Option<&'a Value>) -> Self {
        let class = class(text(of, "/deviceClassName"));
        let of_class = class.map(|class| (text(class, "/metadata/name"), list(class, "/spec/selectors")));
        let compile = |(class, selectors): (&'a str, &'a [Value])| {
            let program = |selector| DeviceSelector::new(text(selector, "/cel/expression"));
            let compiled = selectors.iter().enumerate();
            compiled.map(move |(index, selector)| Selector { class, index, program: program(selector) })
        };
        let selectors = of_class.into_iter().chain([("", list(of, "/selectors"))]).flat_map(compile).collect();
        Self { name, of, class, selectors }
    }

    /// Returns whether a taint of a device is tolerated.
    pub(super) fn tolerates(&self, taint: &Value) -> bool {
        list(self.of, "/tolerations").iter().any(|toleration| tolerates(toleration, taint))
    }

    /// Returns the name of the request or subrequest, as it is in errors.
    pub(super) fn own_name(&self) -> &str {
        self.name.rsplit_once('/').map_or(&self.name, |(_, name)| name)
    }

    /// Returns whether all devices that are selected are asked for.
    pub(super) fn wants_all(&self) -> bool {
        text(self.of, "/allocationMode") == "All"
    }

    /// Returns whether devices are asked for that others may have.
    pub(super) fn is_admin(&self) -> bool {
        self.of["adminAccess"] == true
    }

    /// Returns whether the selectors of the class and of the request select a device.
    ///
    /// # Errors
    /// Kubernetes' error if that can't be decided.
    pub(super) fn selects(&self, driver: &str, device: &Value, claim: &Value) -> Result<bool, String> {
        for Selector { class, index, program } in &self.selectors {
            let owner = || match *class {
                "" => format!("claim {}", shown(claim)),
                class => format!("class {class}"),
            };
            let program = program.as_ref();
            let program = program.map_err(|why| format!("{}: selector #{index}: CEL compile error: {why}", owner()))?;
            let selected = program.selects(driver, device);
            if !selected.map_err(|why| format!("{}: selector #{index}: CEL runtime error: {why}", owner()))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the namespace and name of an object, as they are in errors.
pub(super) fn shown(object: &Value) -> String {
    format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}
