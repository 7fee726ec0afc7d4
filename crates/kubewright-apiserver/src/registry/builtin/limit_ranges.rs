//! What pods and claims get from the limit ranges of their namespace, and what these forbid
//! (<https://kubernetes.io/docs/concepts/policy/limit-range/>).

use std::collections::BTreeMap;

use parking_lot::RwLock;
use serde_json::{Map, Value};

use crate::{
    amounts::{Amount, Amounts, amounts, of_containers},
    fields::{each, set, text, within},
    registry::builtin::validation::{Quantity, entries, items, string},
};

/// The annotation that lists what was set.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// The resources of a whole pod, which replace the sums of its containers.
const OF_PODS: [&str; 2] = ["cpu", "memory"];

/// All limit ranges, by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct LimitRanges(RwLock<BTreeMap<String, BTreeMap<String, Value>>>);

impl LimitRanges {
    /// Sets the default requests and limits of a new pod's containers.
    pub(in crate::registry::builtin) fn admit(&self, pod: &mut Value) {
        let ranges = self.0.read();
        let Some(ranges) = ranges.get(text(pod, "/metadata/namespace")) else { return };
        for range in ranges.values() {
            let limits = items(&range["spec"], "limits").iter().filter(|limit| string(limit, "type") == "Container");
            let mut defaults = [Map::new(), Map::new()];
            for limit in limits {
                for (all, field) in defaults.iter_mut().zip(["defaultRequest", "default"]) {
                    all.extend(entries(limit, field).map(|(name, amount)| (name.to_owned(), amount.clone())));
                }
            }
            let mut added = Vec::new();
            within(pod, "spec", |spec| {
                for (field, what) in [("containers", "container"), ("initContainers", "init container")] {
                    for container in each(spec, field) {
                        set_defaults(container, &defaults, what, &mut added);
                    }
                }
            });
            if !added.is_empty() {
                let note = format!("LimitRanger plugin set: {}", added.join("; "));
                within(pod, "metadata", |metadata| {
                    within(metadata, "annotations", |annotations| set(annotations, ANNOTATION, note));
                });
            }
        }
    }

    /// Returns the reason why a valid new pod is forbidden.
    pub(in crate::registry::builtin) fn forbids_pod(&self, pod: &Value) -> Option<String> {
        self.refusal(pod, |limit, refusals| match string(limit, "type") {
            "Container" => {
                let spec = &pod["spec"];
                for container in items(spec, "containers").iter().chain(items(spec, "initContainers")) {
                    let [requests, limits] = ["requests", "limits"].map(|side| amounts(&container["resources"], side));
                    check(limit, &requests, &limits, refusals);
                }
            }
            "Pod" => {
                let [requests, limits] = ["requests", "limits"].map(|side| of_pod(&pod["spec"], side));
                check(limit, &requests, &limits, refusals);
            }
            _ => {}
        })
    }

    /// Returns the reason why a valid claim is forbidden.
    pub(in crate::registry::builtin) fn forbids_claim(&self, claim: &Value) -> Option<String> {
        const KIND: &str = "PersistentVolumeClaim";
        self.refusal(claim, |limit, refusals| {
            if string(limit, "type") != KIND {
                return;
            }
            let requests = amounts(&claim["spec"]["resources"], "requests");
            for (name, least) in entries(limit, "min") {
                refusals.extend(below(KIND, name, least, &requests, &Amounts::new()));
            }
            for (name, most) in entries(limit, "max") {
                let bound = Bound { side: "maximum", name, kind: KIND, amount: most };
                match requests.get(name) {
                    None => refusals.push(bound.missing("request")),
                    Some(request) if request.amount > Quantity::read(most) => {
                        refusals.push(bound.exceeded("request", request));
                    }
                    Some(_) => {}
                }
            }
        })
    }

    fn refusal(&self, object: &Value, check: impl Fn(&Value, &mut Vec<String>)) -> Option<String> {
        let ranges = self.0.read();
        for range in ranges.get(text(object, "/metadata/namespace"))?.values() {
            let mut refusals = Vec::new();
            for limit in items(&range["spec"], "limits") {
                check(limit, &mut refusals);
            }
            // As Go joins several errors: without repetitions.
            let mut distinct: Vec<String> = Vec::new();
            for refusal in refusals {
                if !distinct.contains(&refusal) {
                    distinct.push(refusal);
                }
            }
            match distinct.len() {
                0 => {}
                1 => return distinct.pop(),
                _ => return Some(format!("[{}]", distinct.join(", "))),
            }
        }
        None
    }

    /// Replaces a limit range.
    pub(in crate::registry::builtin) fn replace(&self, before: Option<&Value>, after: Option<&Value>) {
        let mut ranges = self.0.write();
        let Some(range) = after.or(before) else { return };
        let (namespace, name) = (text(range, "/metadata/namespace"), text(range, "/metadata/name"));
        let present = ranges.entry(namespace.to_owned()).or_default();
        match after {
            Some(range) => drop(present.insert(name.to_owned(), range.clone())),
            None => drop(present.remove(name)),
        }
        if present.is_empty() {
            ranges.remove(namespace);
        }
    }
}

/// Sets the requests and limits that a container lacks, and notes which.
fn set_defaults(container: &mut Value, defaults: &[Map<String, Value>; 2], what: &str, added: &mut Vec<String>) {
    let title = string(container, "name").to_owned();
    for (default, (side, one)) in defaults.iter().zip([("requests", "request"), ("limits", "limit")]) {
        let present = &container["resources"][side];
        let missing = |name: &&String| present.get(name.as_str()).is_none_or(Value::is_null);
        let names: Vec<&String> = default.keys().filter(missing).collect();
        if names.is_empty() {
            continue;
        }
        within(container, "resources", |resources| {
            within(resources, side, |present| names.iter().for_each(|name| set(present, name, default[*name].clone())));
        });
        let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
        added.push(format!("{} {one} for {what} {title}", names.join(", ")));
    }
}

/// Returns the requests or limits of a whole pod.
pub(super) fn of_pod(spec: &Value, side: &str) -> Amounts {
    let mut sum = of_containers(spec, |container| amounts(&container["resources"], side));
    for (name, value) in entries(&spec["resources"], side).filter(|(name, _)| OF_PODS.contains(name)) {
        sum.insert(name.to_owned(), Amount::of(value));
    }
    sum
}

/// A bound of a limit range.
struct Bound<'a> {
    side: &'a str,
    name: &'a str,
    kind: &'a str,
    amount: &'a Value,
}

impl Bound<'_> {
    fn text(&self) -> String {
        let Self { side, name, kind, amount } = self;
        format!("{side} {name} usage per {kind} is {}", Amount::of(amount).shown)
    }

    fn missing(&self, what: &str) -> String {
        format!("{}.  No {what} is specified", self.text())
    }

    fn exceeded(&self, what: &str, found: &Amount) -> String {
        format!("{}, but {what} is {}", self.text(), found.shown)
    }
}

fn check(limit: &Value, requests: &Amounts, limits: &Amounts, refusals: &mut Vec<String>) {
    let kind = string(limit, "type");
    for (name, least) in entries(limit, "min") {
        refusals.extend(below(kind, name, least, requests, limits));
    }
    for (name, most) in entries(limit, "max") {
        refusals.extend(above(kind, name, most, requests, limits));
    }
    for (name, most) in entries(limit, "maxLimitRequestRatio") {
        refusals.extend(wrong_ratio(kind, name, most, requests, limits));
    }
}

fn below(kind: &str, name: &str, least: &Value, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let (bound, amount) = (Bound { side: "minimum", name, kind, amount: least }, Quantity::read(least));
    let Some(request) = requests.get(name) else { return Some(bound.missing("request")) };
    if request.amount < amount {
        return Some(bound.exceeded("request", request));
    }
    limits.get(name).filter(|limit| limit.amount < amount).map(|limit| bound.exceeded("limit", limit))
}

fn above(kind: &str, name: &str, most: &Value, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let (bound, amount) = (Bound { side: "maximum", name, kind, amount: most }, Quantity::read(most));
    let Some(limit) = limits.get(name) else { return Some(bound.missing("limit")) };
    if limit.amount > amount {
        return Some(bound.exceeded("limit", limit));
    }
    requests.get(name).filter(|request| request.amount > amount).map(|request| bound.exceeded("request", request))
}

fn wrong_ratio(kind: &str, name: &str, most: &Value, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let text = format!("{name} max limit to request ratio per {kind} is {}", Amount::of(most).shown);
    let present = |amounts: &Amounts| amounts.get(name).map(|found| found.amount).filter(|amount| !amount.is_zero());
    let Some(request) = present(requests) else {
        return Some(format!("{text}, but no request is specified or request is 0"));
    };
    let Some(limit) = present(limits) else {
        return Some(format!("{text}, but no limit is specified or limit is 0"));
    };
    #[allow(clippy::cast_precision_loss, reason = "as in Kubernetes")]
    let [limit, request, most] = [limit, request, Quantity::read(most)].map(|amount| amount.thousandths() as f64);
    let ratio = limit / request;
    (ratio * 1000.0 > most).then(|| format!("{text}, but provided ratio is {ratio:.6}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ranges(limits: Value) -> LimitRanges {
        let ranges = LimitRanges::default();
        ranges.replace(None, Some(&json!({"metadata": {"namespace": "n", "name": "l"}, "spec": {"limits": limits}})));
        ranges
    }

    fn pod(containers: Value) -> Value {
        json!({"metadata": {"namespace": "n", "name": "p"}, "spec": {"containers": containers}})
    }

    #[test]
    fn containers_get_the_defaults_of_their_namespace() {
        let ranges = ranges(json!([{
            "type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"},
        }]));
        let mut object =
            pod(json!([{"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}}]));
        ranges.admit(&mut object);
        let resources = |index: usize| object["spec"]["containers"][index]["resources"].clone();
        assert_eq!(resources(0), json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}}));
        assert_eq!(resources(1), json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2"}}));
        assert_eq!(
            object["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu request for container a; cpu, memory limit for container a; memory limit for container b"
        );
        let elsewhere = json!({"metadata": {"namespace": "m"}, "spec": {"containers": [{"name": "a"}]}});
        let mut object = elsewhere.clone();
        ranges.admit(&mut object);
        assert_eq!(object, elsewhere);
    }

    #[test]
    fn pods_outside_of_the_limits_are_forbidden() {
        let limits = ranges(json!([
            {"type": "Container", "min": {"cpu": "100m"}, "max": {"memory": "1Gi"}, "maxLimitRequestRatio": {"cpu": "2"}},
            {"type": "Pod", "max": {"memory": "1536Mi"}},
        ]));
        let container = |requests: Value, limits: Value| json!({"name": "a", "resources": {"requests": requests, "limits": limits}});
        let check = |containers: Value, expect: Option<&str>| {
            assert_eq!(limits.forbids_pod(&pod(containers)).as_deref(), expect);
        };
        let good = container(json!({"cpu": "100m"}), json!({"cpu": "200m", "memory": "768Mi"}));
        check(json!([good]), None);
        check(json!([good, good]), None);
        check(json!([good, good, good]), Some("maximum memory usage per Pod is 1536Mi, but limit is 2304Mi"));
        check(
            json!([container(json!({"cpu": "50m"}), json!({"cpu": "150m", "memory": "2Gi"}))]),
            Some(
                "[minimum cpu usage per Container is 100m, but request is 50m, maximum memory usage per Container is 1Gi, but limit \
                 is 2Gi, cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000, maximum memory usage per \
                 Pod is 1536Mi, but limit is 2Gi]",
            ),
        );
        check(
            json!([container(json!({}), json!({"memory": "1Gi"}))]),
            Some(
                "[minimum cpu usage per Container is 100m.  No request is specified, cpu max limit to request ratio per Container \
                 is 2, but no request is specified or request is 0]",
            ),
        );
        limits.replace(Some(&json!({"metadata": {"namespace": "n", "name": "l"}})), None);
        check(json!([container(json!({}), json!({}))]), None);
    }

    #[test]
    fn a_pod_needs_what_its_init_containers_need_with_the_sidecars_before_them() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = container("100m");
        sidecar["restartPolicy"] = "Always".into();
        let spec = json!({
            "containers": [container("200m"), container("300m")],
            "initContainers": [container("550m"), sidecar, container("550m")],
        });
        assert_eq!(of_pod(&spec, "requests")["cpu"].shown, "650m");
        let mut whole = spec.clone();
        whole["resources"] = json!({"requests": {"cpu": "2", "example.com/a": "3"}});
        let all = of_pod(&whole, "requests");
        assert_eq!((all["cpu"].shown.as_str(), all.len()), ("2", 1));
    }

    #[test]
    fn claims_outside_of_the_limits_are_forbidden() {
        let limits =
            ranges(json!([{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}]));
        let check = |storage: &str, expect: Option<&str>| {
            let claim =
                json!({"metadata": {"namespace": "n"}, "spec": {"resources": {"requests": {"storage": storage}}}});
            assert_eq!(limits.forbids_claim(&claim).as_deref(), expect, "{storage}");
        };
        check("1Gi", None);
        check("2Gi", None);
        check("1Mi", Some("minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"));
        check("3Gi", Some("maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"));
    }
}
