//! The choice of devices of a node for the claims of a pod. Pure.
//!
//! The search is that of Kubernetes' allocator, with backtracking: claim by claim, request by request and device by
//! device, it takes the first suitable device. Where no device is suitable, it returns to the choice before.

use std::collections::BTreeMap;

use kubewright_apimachinery::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::{
    capacity::{self, Consumption},
    counters::{self, Counters},
    demand::{Alternative, ClaimDemand, Demand, DeviceId, InUse, RequestDemand},
    pools::{self, Content, Pool, PoolId, Usable},
};
use crate::controllers::{
    device_taint_eviction::NO_EXECUTE,
    value::{list, number, text},
};

/// The greatest number of devices of a claim.
const MAX_RESULTS: usize = 32;
/// How many devices a search tries. Kubernetes limits the time instead.
const MAX_STEPS: usize = 100_000;

/// Why the claims of a pod get no devices of a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The node doesn't have them, for Kubernetes' reason.
    Unavailable(&'static str),
    /// Nothing can be decided about the pod.
    Broken(String),
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Broken(why)
    }
}

/// Returns the allocation of each claim, in the order of the claims.
pub(super) fn allocate<'a>(
    demand: &Demand<'a>,
    slices: impl Iterator<Item = &'a Value> + Clone,
    node: &Value,
) -> Result<Vec<Value>, Failure> {
    let pools = pools::pools(slices, node);
    let mut search = Search::new(demand, &pools, node);
    search.count(&pools)?;
    if search.run()? {
        return Ok(search.allocations());
    }
    let is_invalid = pools.iter().any(|pool| pool.content == Content::Invalid);
    Err(Failure::Unavailable(if is_invalid {
        "invalid resource pools were encountered"
    } else {
        "cannot allocate all claims"
    }))
}

/// A device of a node.
#[derive(Debug)]
struct Device<'a> {
    id: DeviceId<'a>,
    device: &'a Value,
    slice: &'a Value,
    /// The index of its pool.
    pool: usize,
}

impl Device<'_> {
    /// Returns an attribute by its name with a domain, which may be the driver.
    fn attribute(&self, name: &str) -> Option<&Value> {
        let attributes = &self.device["attributes"];
        let of_driver = || name.strip_prefix(self.id.driver)?.strip_prefix('/').and_then(|id| attributes.get(id));
        attributes.get(name).or_else(of_driver)
    }

    /// Returns what says which nodes the device is for.
    fn place(&self) -> &Value {
        if pools::is_per_device(self.slice) { self.device } else { &self.slice["spec"] }
    }

    fn is_tainted_for(&self, alternative: &Alternative<'_>) -> bool {
        let repels = |taint: &&Value| matches!(text(taint, "/effect"), "NoSchedule" | NO_EXECUTE);
        list(self.device, "/taints").iter().filter(repels).any(|taint| !alternative.tolerates(taint))
    }

    /// Returns whether several requests can have the device.
    fn is_shared(&self) -> bool {
        self.device["allowMultipleAllocations"] == true
    }
}

/// A request, or one of its alternatives: the indices of the claim, the request and the alternative.
type Place = (usize, usize, usize);

/// A device that is chosen for a place.
#[derive(Debug)]
struct Chosen<'a> {
    place: Place,
    /// The index of the device.
    device: usize,
    /// Whether it has taken what it consumes of counters. Only the first request for a shared device does.
    has_counters: bool,
    /// What the request consumes of the device.
    consumption: Consumption<'a>,
}

/// A choice of the search, with those that it has left.
#[derive(Debug)]
enum Level {
    Alternative {
        claim: usize,
        request: usize,
        next: usize,
    },
    /// The choice of a device: the number of those before it for the same place, and the first that may be taken.
    Device {
        place: Place,
        count: usize,
        next: usize,
        is_chosen: bool,
    },
}

/// How a search continues.
#[derive(Debug)]
enum Step {
    Level(Level),
    DeadEnd,
    Done,
}

/// How many devices are wanted for a place, and which ones if all are.
#[derive(Debug, Default)]
struct Wanted {
    count: usize,
    all: Option<Vec<usize>>,
}

#[derive(Debug)]
struct Search<'s, 'a> {
    demand: &'s Demand<'a>,
    node: &'s Value,
    devices: Vec<Device<'a>>,
    /// What is left of the counters of each pool.
    counters: Vec<Counters<'a>>,
    wanted: BTreeMap<Place, Wanted>,
    /// Which devices are selected for a place, as far as that is known.
    selected: BTreeMap<(Place, usize), bool>,
    chosen: Vec<Chosen<'a>>,
    steps: usize,
}

impl<'s, 'a> Search<'s, 'a> {
    fn new(demand: &'s Demand<'a>, pools: &[Pool<'a>], node: &'s Value) -> Self {
        let mut devices = Vec::new();
        let mut counters = Vec::new();
        for (index, pool) in pools.iter().enumerate() {
            let mut left = Counters::default();
            if let Content::Usable(usable) = &pool.content {
                devices.extend(usable.for_node.iter().flat_map(|slice| devices_of(pool.id, index, slice)));
                left = left_in(pool.id, usable, &demand.in_use);
            }
            counters.push(left);
        }
        Self {
            demand,
            node,
            devices,
            counters,
            wanted: BTreeMap::new(),
            selected: BTreeMap::new(),
            chosen: Vec::new(),
            steps: 0,
        }
    }

    fn request(&self, (claim, request, _): Place) -> Option<&'s RequestDemand<'a>> {
        self.demand.claims.get(claim)?.requests.get(request)
    }

    fn alternative(&self, place: Place) -> Option<&'s Alternative<'a>> {
        self.request(place)?.alternatives.get(place.2)
    }

    /// Computes how many devices are wanted.
    fn count(&mut self, pools: &[Pool<'_>]) -> Result<(), Failure> {
        for (claim, demand) in self.demand.claims.iter().enumerate() {
            let mut least = 0_usize;
            for (request, of) in demand.requests.iter().enumerate() {
                let mut counts = Vec::new();
                for (alternative, of) in of.alternatives.iter().enumerate() {
                    let place = (claim, request, alternative);
                    let wanted = self.wanted(place, of, demand, pools)?;
                    counts.push(wanted.count);
                    self.wanted.insert(place, wanted);
                }
                least = least.saturating_add(counts.into_iter().min().unwrap_or_default());
            }
            if least > MAX_RESULTS {
                let claim = demand.shown();
                let why = format!(
                    "claim {claim}: number of requested devices {least} exceeds the claim limit of {MAX_RESULTS}"
                );
                return Err(why.into());
            }
        }
        Ok(())
    }

    fn wanted(
        &mut self,
        place: Place,
        alternative: &Alternative<'_>,
        claim: &ClaimDemand<'_>,
        pools: &[Pool<'_>],
    ) -> Result<Wanted, Failure> {
        if !alternative.wants_all() {
            let count =
                number(alternative.of, "/count").map_or(1, |count| usize::try_from(count).unwrap_or(usize::MAX));
            return Ok(Wanted { count, all: None });
        }
        let name = alternative.own_name();
        let unusable = pools.iter().find_map(|pool| match pool.content {
            Content::Incomplete => Some((pool.id, "being updated")),
            Content::Invalid => Some((pool.id, "invalid")),
            Content::Usable(_) => None,
        });
        if let Some((pool, state)) = unusable {
            let claim = claim.shown();
            let why = format!(
                "claim {claim}, request {name}: asks for all devices, but resource pool {pool} is currently {state}"
            );
            return Err(why.into());
        }
        let mut all = Vec::new();
        for device in 0..self.devices.len() {
            if self.is_selected(place, device)? && self.consumption(place, device).is_some() {
                all.push(device);
            }
        }
        Ok(Wanted { count: all.len(), all: Some(all) })
    }

    /// Returns whether a device is what is asked for, whoever has it.
    fn is_selected(&mut self, place: Place, index: usize) -> Result<bool, Failure> {
        if let Some(known) = self.selected.get(&(place, index)) {
            return Ok(*known);
        }
        let (Some(alternative), Some(device)) = (self.alternative(place), self.devices.get(index)) else {
            return Ok(false);
        };
        let claim = self.demand.claims.get(place.0).map_or(&Value::Null, |demand| demand.claim);
        let is_here = !pools::is_per_device(device.slice) || pools::is_for(device.device, self.node);
        let selected = alternative.selects(device.id.driver, device.device, claim)? && is_here;
        self.selected.insert((place, index), selected);
        Ok(selected)
    }

    /// Chooses devices for everything that is wanted. Returns false if that can't be done.
    fn run(&mut self) -> Result<bool, Failure> {
        let mut levels: Vec<Level> = Vec::new();
        let mut step = self.enter_request(0, 0);
        loop {
            match step {
                Step::Done => return Ok(true),
                Step::DeadEnd => {}
                Step::Level(level) => levels.push(level),
            }
            step = loop {
                let Some(level) = levels.last_mut() else { return Ok(false) };
                match self.advance(level)? {
                    Some(step) => break step,
                    None => drop(levels.pop()),
                }
            };
        }
    }

    /// Chooses the next device or alternative of a level. Returns `None` if none is left.
    fn advance(&mut self, level: &mut Level) -> Result<Option<Step>, Failure> {
        match level {
            Level::Alternative { claim, request, next } => {
                let place = (*claim, *request, *next);
                *next += 1;
                Ok(self.alternative(place).is_some().then(|| self.enter(place)))
            }
            Level::Device { place, count, next, is_chosen } => {
                if std::mem::take(is_chosen) {
                    self.drop_last();
                }
                let all = self.wanted.get(place).and_then(|wanted| wanted.all.as_ref());
                // If all are wanted, each has its turn, and another one would be no help.
                let is_all = all.is_some();
                let first = all.map_or(Some(*next), |all| all.get(*count).copied().filter(|_| *next == 0));
                let last = if is_all { first.map_or(0, |first| first + 1) } else { self.devices.len() };
                for device in first.unwrap_or(last)..last {
                    *next = device + 1;
                    self.steps += 1;
                    if self.steps > MAX_STEPS {
                        let node = text(self.node, "/metadata/name");
                        return Err(format!("node {node}: timed out trying to allocate devices").into());
                    }
                    if self.choose(*place, device, is_all)? {
                        *is_chosen = true;
                        return Ok(Some(self.enter_next(*place, *count + 1, device + 1)));
                    }
                }
                if is_all {
                    *next = usize::MAX;
                }
                Ok(None)
            }
        }
    }

    /// Continues with a request, or with the first of the next claim.
    fn enter_request(&self, claim: usize, request: usize) -> Step {
        let Some(demand) = self.demand.claims.get(claim) else { return Step::Done };
        match demand.requests.get(request) {
            None => self.enter_request(claim + 1, 0),
            Some(of) if of.alternatives.len() > 1 => Step::Level(Level::Alternative { claim, request, next: 0 }),
            Some(_) => self.enter((claim, request, 0)),
        }
    }

    /// Continues with the first device for a place.
    fn enter(&self, place: Place) -> Step {
        let Some(wanted) = self.wanted.get(&place) else { return Step::DeadEnd };
        let before = self.chosen.iter().filter(|chosen| chosen.place.0 == place.0).count();
        let is_nothing = wanted.all.is_some() && wanted.count == 0;
        if is_nothing || before.saturating_add(wanted.count) > MAX_RESULTS {
            return Step::DeadEnd;
        }
        self.enter_next(place, 0, 0)
    }

    /// Continues after a number of devices for a place. The order of the devices for one place doesn't matter, so that
    /// each is behind the one before it.
    fn enter_next(&self, place: Place, count: usize, next: usize) -> Step {
        let wanted = self.wanted.get(&place);
        if wanted.is_none_or(|wanted| count >= wanted.count) {
            return self.enter_request(place.0, place.1 + 1);
        }
        let next = if wanted.is_some_and(|wanted| wanted.all.is_some()) { 0 } else { next };
        Step::Level(Level::Device { place, count, next, is_chosen: false })
    }

    /// Chooses a device for a place. Returns false if that can't be done.
    fn choose(&mut self, place: Place, index: usize, must: bool) -> Result<bool, Failure> {
        if !self.is_free(place, index)? || !self.meets_constraints(place, index, must)? {
            return Ok(false);
        }
        let (Some(consumption), Some(device)) = (self.consumption(place, index), self.devices.get(index)) else {
            return Ok(false);
        };
        let has_counters = self.needs_counters(index);
        if let Some(left) = self.counters.get_mut(device.pool).filter(|_| has_counters) {
            left.consume(device.device);
        }
        self.chosen.push(Chosen { place, device: index, has_counters, consumption });
        Ok(true)
    }

    /// Takes back the last choice of a device.
    fn drop_last(&mut self) {
        let Some(last) = self.chosen.pop() else { return };
        let Some(device) = self.devices.get(last.device).filter(|_| last.has_counters) else { return };
        if let Some(left) = self.counters.get_mut(device.pool) {
            left.release(device.device);
        }
    }

    /// Returns whether a device is selected and can be taken.
    fn is_free(&mut self, place: Place, index: usize) -> Result<bool, Failure> {
        let (Some(alternative), Some(device)) = (self.alternative(place), self.devices.get(index)) else {
            return Ok(false);
        };
        let is_admin = alternative.is_admin();
        let mut taken = self.chosen.iter().filter(|chosen| !is_admin || chosen.place.0 == place.0);
        let is_taken = !device.is_shared() && taken.any(|chosen| chosen.device == index);
        if is_taken || !is_admin && self.demand.in_use.is_exclusive(&device.id) {
            return Ok(false);
        }
        Ok(self.is_selected(place, index)? && self.is_usable(place, index))
    }

    /// Returns whether enough counters are left for a device, and its taints are tolerated.
    fn is_usable(&self, place: Place, index: usize) -> bool {
        let (Some(alternative), Some(device)) = (self.alternative(place), self.devices.get(index)) else {
            return false;
        };
        let suffice = || self.counters.get(device.pool).is_some_and(|left| left.suffice_for(device.device));
        !device.is_tainted_for(alternative) && (!self.needs_counters(index) || suffice())
    }

    /// Returns whether an allocation of a device consumes counters. Those of a shared device are consumed once.
    fn needs_counters(&self, index: usize) -> bool {
        self.devices.get(index).is_some_and(|device| {
            let is_chosen = || self.chosen.iter().any(|chosen| chosen.device == index);
            let is_in_use = device.is_shared() && (self.demand.in_use.consumed(&device.id).is_some() || is_chosen());
            counters::has_counters(device.device) && !is_in_use
        })
    }

    /// Returns what a request consumes of a device; `None` if the device doesn't have that.
    fn consumption(&self, place: Place, index: usize) -> Option<Consumption<'a>> {
        let (alternative, device) = (self.alternative(place)?, self.devices.get(index)?);
        let of_others = self.demand.in_use.consumed(&device.id);
        let in_use = |name: &str| {
            let of_others = of_others.and_then(|amounts| amounts.get(name)).copied().unwrap_or_default();
            let chosen = self.chosen.iter().filter(|chosen| chosen.device == index);
            let amounts = chosen.filter_map(|chosen| Some(chosen.consumption.get(name)?.amount));
            amounts.fold(of_others, Quantity::plus)
        };
        let consumption = capacity::consumption(&alternative.of["capacity"]["requests"], device.device, in_use)?;
        Some(if device.is_shared() { consumption } else { Consumption::new() })
    }

    /// Returns whether a device meets the constraints of its claim, together with those chosen before.
    fn meets_constraints(&self, place: Place, index: usize, must: bool) -> Result<bool, Failure> {
        let (Some(demand), Some(device)) = (self.demand.claims.get(place.0), self.devices.get(index)) else {
            return Ok(false);
        };
        let meets = list(demand.claim, "/spec/devices/constraints").iter().all(|constraint| {
            if !self.is_concerned(constraint, place) {
                return true;
            }
            let is_concerned =
                |other: &&Chosen<'_>| other.place.0 == place.0 && self.is_concerned(constraint, other.place);
            let mut others = self.chosen.iter().filter(is_concerned).filter_map(|other| self.devices.get(other.device));
            match (constraint["matchAttribute"].as_str(), constraint["distinctAttribute"].as_str()) {
                (Some(name), _) => device
                    .attribute(name)
                    .is_some_and(|value| others.next().is_none_or(|first| first.attribute(name) == Some(value))),
                (None, Some(name)) => {
                    device.attribute(name).is_some_and(|value| others.all(|other| other.attribute(name) != Some(value)))
                }
                (None, None) => false,
            }
        });
        if !meets && must {
            let (claim, name) = (demand.shown(), self.alternative(place).map_or("", Alternative::own_name));
            let why = format!(
                "claim {claim}, request {name}: cannot add device {} because a claim constraint would not be satisfied",
                device.id
            );
            return Err(why.into());
        }
        Ok(meets)
    }

    fn is_concerned(&self, constraint: &'a Value, place: Place) -> bool {
        let (Some(request), Some(alternative)) = (self.request(place), self.alternative(place)) else { return false };
        list(constraint, "/requests").is_empty() || request.is_in(&constraint["requests"], alternative)
    }

    /// Returns the allocations that the choices make up.
    fn allocations(&self) -> Vec<Value> {
        let claims = self.demand.claims.iter().enumerate();
        claims.map(|(index, demand)| self.allocation(index, demand)).collect()
    }

    fn allocation(&self, index: usize, demand: &ClaimDemand<'a>) -> Value {
        let chosen: Vec<_> = self.chosen.iter().filter(|chosen| chosen.place.0 == index).collect();
        let results: Vec<_> = chosen.iter().filter_map(|chosen| self.result(chosen)).collect();
        let mut allocation = json!({"devices": {"results": results}});
        let config = self.config(index, demand);
        if !config.is_empty() {
            allocation["devices"]["config"] = config.into();
        }
        let devices = chosen.iter().filter_map(|chosen| self.devices.get(chosen.device));
        if let Some(selector) = node_selector(devices, self.node) {
            allocation["nodeSelector"] = selector;
        }
        allocation
    }

    fn result(&self, chosen: &Chosen<'_>) -> Option<Value> {
        let (alternative, device) = (self.alternative(chosen.place)?, self.devices.get(chosen.device)?);
        let mut result = json!({
            "request": alternative.name, "driver": device.id.driver, "pool": device.id.pool,
            "device": device.id.device,
        });
        if alternative.is_admin() {
            result["adminAccess"] = true.into();
        }
        if let Some(tolerations) = alternative.of.get("tolerations") {
            result["tolerations"] = tolerations.clone();
        }
        if device.is_shared() {
            // It gets one when it is written.
            result["shareID"] = "".into();
        }
        for field in ["bindingConditions", "bindingFailureConditions"] {
            if let Some(conditions) = device.device.get(field) {
                result[field] = conditions.clone();
            }
        }
        if !chosen.consumption.is_empty() {
            let amounts = chosen.consumption.iter();
            let amounts: Map<_, _> = amounts.map(|(name, consumed)| ((*name).into(), consumed.text.clone())).collect();
            result["consumedCapacity"] = amounts.into();
        }
        Some(result)
    }

    /// Returns the configuration of the devices of a claim: first that of the classes, then that of the claim.
    fn config(&self, index: usize, demand: &ClaimDemand<'a>) -> Vec<Value> {
        // The devices of a request tell which alternative was chosen.
        let alternative = |request: usize| {
            let place =
                self.chosen.iter().map(|chosen| chosen.place).find(|place| (place.0, place.1) == (index, request));
            self.alternative(place.unwrap_or((index, request, 0)))
        };
        let entry = |source: &str, requests: Vec<Value>, config: &Value| {
            let mut entry = config.clone();
            entry["source"] = source.into();
            entry["requests"] = requests.into();
            entry
        };
        let mut config: Vec<Value> = Vec::new();
        let mut classes: Vec<(&Value, Vec<Value>)> = Vec::new();
        for request in 0..demand.requests.len() {
            let Some(alternative) = alternative(request) else { continue };
            let Some(class) = alternative.class else { continue };
            match classes.iter_mut().find(|(known, _)| std::ptr::eq(*known, class)) {
                Some((_, names)) => names.push(alternative.name.as_str().into()),
                None => classes.push((class, vec![alternative.name.as_str().into()])),
            }
        }
        for (class, names) in classes {
            config.extend(list(class, "/spec/config").iter().map(|one| entry("FromClass", names.clone(), one)));
        }
        for one in list(demand.claim, "/spec/devices/config") {
            let requests = list(one, "/requests").to_vec();
            // One that names several requests is there once for each.
            let is_about = |(request, of): &(usize, &RequestDemand<'a>)| {
                alternative(*request).is_some_and(|alternative| of.is_in(&one["requests"], alternative))
            };
            let times =
                if requests.is_empty() { 1 } else { demand.requests.iter().enumerate().filter(is_about).count() };
            config.extend((0..times).map(|_| {
                let mut entry = entry("FromClaim", requests.clone(), one);
                if requests.is_empty() {
                    entry.as_object_mut().map(|entry| entry.remove("requests"));
                }
                entry
            }));
        }
        config
    }
}

/// Returns the devices of a slice of a pool with this index.
fn devices_of<'a>(id: PoolId<'a>, pool: usize, slice: &'a Value) -> impl Iterator<Item = Device<'a>> {
    let device = move |device| {
        let id = DeviceId { driver: id.driver, pool: id.name, device: text(device, "/name") };
        Device { id, device, slice, pool }
    };
    pools::devices(slice).iter().map(device)
}

/// Returns what the devices in use leave of the counters of a pool.
fn left_in<'a>(id: PoolId<'a>, usable: &Usable<'a>, in_use: &InUse<'a>) -> Counters<'a> {
    let mut left = usable.counters.clone();
    let devices = usable.for_node.iter().chain(&usable.for_others).flat_map(|slice| pools::devices(slice));
    for device in devices.filter(|device| counters::has_counters(device)) {
        let id = DeviceId { driver: id.driver, pool: id.name, device: text(device, "/name") };
        if in_use.includes(&id) {
            left.consume(device);
        }
    }
    left
}

/// Returns which nodes can use devices; `None` if all can.
fn node_selector<'d>(devices: impl Iterator<Item = &'d Device<'d>>, node: &Value) -> Option<Value> {
    let (mut fields, mut expressions): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    for device in devices {
        let place = device.place();
        if place["nodeName"].is_string() || device.device["bindsToNode"] == true {
            let name = json!({"key": "metadata.name", "operator": "In", "values": [node["metadata"]["name"]]});
            return Some(json!({"nodeSelectorTerms": [{"matchFields": [name]}]}));
        }
        for term in list(&place["nodeSelector"], "/nodeSelectorTerms") {
            for (from, to) in [("/matchFields", &mut fields), ("/matchExpressions", &mut expressions)] {
                to.extend(list(term, from).iter().filter(|one| !to.contains(one)).cloned().collect::<Vec<_>>());
            }
        }
    }
    let mut term = json!({});
    for (name, requirements) in [("matchFields", fields), ("matchExpressions", expressions)] {
        if !requirements.is_empty() {
            term[name] = requirements.into();
        }
    }
    (term != json!({})).then(|| json!({"nodeSelectorTerms": [term]}))
}
