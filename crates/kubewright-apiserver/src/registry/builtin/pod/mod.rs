//! Pods, and the pod templates of other kinds.

pub(super) mod annotations;
mod app_armor;
mod columns;
mod connect;
mod defaults;
mod kubelet;
mod part;
mod reach;
mod resize;
mod runtime;
mod validate;

use std::sync::Arc;

use kubewright_apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

pub(crate) use self::runtime::RuntimeClasses;
pub(super) use self::{
    columns::columns,
    connect::{connection, options_kind},
    defaults::spec as default_spec,
    validate::*,
};
use super::{
    limit_ranges::LimitRanges, node_references::NodeReferences, priority::PriorityClasses,
    service_account::ServiceAccounts, topology::NodeTopology, validation::Errors,
};
use crate::{
    auth::Requester,
    fields::{entries, fill, has, int, list, present, remove, set, text, within},
    plugins::{AdmissionPlugin, Plugins},
    registry::{AtKubelet, Strategy},
};

/// The fields for field selectors. The path of each equals its name.
pub(super) const SELECTABLE: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];

/// The strategy of bindings, which assign pods to nodes and aren't stored.
#[derive(Debug)]
pub(super) struct PodBinding;

impl Strategy for PodBinding {
    fn binds(&self) -> Option<[&'static str; 3]> {
        Some(["", "v1", "pods"])
    }
}

/// The strategy of pods.
#[derive(Debug)]
pub(super) struct PodStrategy {
    pub(super) priorities: Arc<PriorityClasses>,
    pub(super) runtimes: Arc<RuntimeClasses>,
    pub(super) limits: Arc<LimitRanges>,
    pub(super) accounts: Arc<ServiceAccounts>,
    pub(super) topology: Arc<NodeTopology>,
    /// What pods refer to, which this strategy keeps up to date.
    pub(super) references: Arc<NodeReferences>,
    pub(super) plugins: Arc<Plugins>,
}

impl PodStrategy {
    /// Returns what limit ranges have against a pod.
    fn beyond_limits(&self, pod: &Value) -> Option<String> {
        self.plugins.has(AdmissionPlugin::LimitRanger).then(|| self.limits.forbids_pod(pod)).flatten()
    }
}

impl Strategy for PodStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            default_spec(spec);
            fill(spec, "enableServiceLinks", true);
            // As in Kubernetes, a template keeps a negative period.
            if int(spec, "/terminationGracePeriodSeconds") < 0 {
                set(spec, "terminationGracePeriodSeconds", 1);
            }
            defaults::requests(spec);
            defaults::host_ports(spec);
        });
        present(object, "status", defaults::addresses);
    }

    fn prepare_create(&self, object: &mut Value) {
        defaults::label_keys(object);
        app_armor::copy_annotations(object);
        let class = quality_of_service(object);
        let mut status = json!({"phase": "Pending", "qosClass": class});
        if !list(object, "/spec/schedulingGates").is_empty() {
            status["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": null, "lastTransitionTime": object["metadata"]["creationTimestamp"],
            }]);
        }
        set(object, "status", status);
    }

    fn warnings_of_new(&self, object: &Value) -> Vec<String> {
        app_armor::warnings(object)
    }

    fn is_early(&self, object: &Value) -> bool {
        self.accounts.is_awaited(object)
    }

    fn admit(&self, old: Option<&Value>, object: &mut Value) -> Result<(), String> {
        let Some(old) = old else {
            // In the order of Kubernetes' admission plugins.
            if self.plugins.has(AdmissionPlugin::LimitRanger) {
                self.limits.admit(object);
            }
            self.accounts.admit(object)?;
            if self.plugins.has(AdmissionPlugin::Priority) {
                self.priorities.admit(object)?;
            }
            if self.plugins.has(AdmissionPlugin::DefaultTolerationSeconds) {
                within(object, "spec", defaults::tolerate_failing_nodes);
            }
            if self.plugins.has(AdmissionPlugin::RuntimeClass) {
                self.runtimes.admit(object)?;
            }
            let node = text(object, "/spec/nodeName").to_owned();
            self.topology.label(object, &node);
            return Ok(());
        };
        within(object, "spec", |spec| {
            if self.plugins.has(AdmissionPlugin::Priority) {
                for field in ["priority", "preemptionPolicy"] {
                    if let Some(value) = old["spec"].get(field) {
                        fill(spec, field, value.clone());
                    }
                }
            }
            if self.plugins.has(AdmissionPlugin::DefaultTolerationSeconds) {
                defaults::tolerate_failing_nodes(spec);
            }
        });
        Ok(())
    }

    fn admit_subresource(&self, subresource: &str, old: Option<&Value>, body: &mut Value) {
        match (subresource, old) {
            ("binding", _) if body["target"]["kind"] == "Node" => {
                let node = text(body, "/target/name").to_owned();
                self.topology.label(body, &node);
            }
            ("resize", Some(old)) if !is_deleting(old) && self.plugins.has(AdmissionPlugin::LimitRanger) => {
                self.limits.admit(body);
            }
            _ => {}
        }
    }

    fn prepare_update(&self, _old: &Value, new: &mut Value) {
        let class = quality_of_service(new);
        within(new, "status", |status| fill(status, "qosClass", class));
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| match old {
            None => validate::validate_create(new, errors),
            Some(old) => validate::validate_update(old, new, errors),
        })
    }

    fn validate_status(&self, old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_status(old, new, errors))
    }

    fn prepare_status(&self, _subresource: &str, old: &Value, new: &mut Value, _now: &Value) {
        let class = old["status"].get("qosClass").cloned().unwrap_or_else(|| quality_of_service(old).into());
        within(new, "status", |status| fill(status, "qosClass", class));
    }

    fn prepare_part(&self, subresource: &str, old: &Value, new: &mut Value) {
        part::restore(subresource, old, new);
    }

    fn validate_part(&self, subresource: &str, old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| match subresource {
            "ephemeralcontainers" => validate::validate_ephemeral_update(old, new, errors),
            "resize" => validate::validate_resize(old, new, errors),
            _ => validate::validate_update(old, new, errors),
        })
    }

    fn check_access(&self, _requester: &Requester<'_>, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        let forbidden = |why: &str| Err(Status::forbidden("", "pods", text(new, "/metadata/name"), why));
        if let Some(old) = old {
            let ephemeral = |pod| list(pod, "/spec/ephemeralContainers");
            let is_changed = ephemeral(old) != ephemeral(new);
            let why = is_changed.then(|| self.accounts.forbids_ephemeral(new)).flatten();
            return why.map_or(Ok(()), |why| forbidden(&why));
        }
        if let Some(why) = self.beyond_limits(new) {
            return forbidden(&why);
        }
        if !self.plugins.has(AdmissionPlugin::RuntimeClass) {
            return Ok(());
        }
        self.runtimes.wrong_overhead(new).map_or(Ok(()), forbidden)
    }

    fn check_part_access(
        &self,
        requester: &Requester<'_>,
        subresource: &str,
        old: &Value,
        new: &Value,
    ) -> Result<(), Status> {
        if subresource == "resize"
            && !is_deleting(old)
            && let Some(why) = self.beyond_limits(new)
        {
            return Err(Status::forbidden("", "pods", text(new, "/metadata/name"), &why));
        }
        self.check_access(requester, Some(old), new)
    }

    fn check_node(&self, object: &Value, node: &Value) -> Result<(), Status> {
        let Some(why) = resize::lack(object, node) else { return Ok(()) };
        let mut status = Status::forbidden("", "pods", text(object, "/metadata/name"), &why);
        if let Some(details) = &mut status.details {
            details.causes.push(Cause::new("NodeCapacity", "", ""));
        }
        Err(status)
    }

    fn warnings(&self, old: Option<&Value>, new: &Value) -> Vec<String> {
        // As in Kubernetes, updates aren't worth the time, since controllers make them.
        if old.is_some() { Vec::new() } else { warnings(new) }
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    /// Returns no grace period for a pod that isn't scheduled or has terminated, since no node would confirm its
    /// termination.
    fn grace_period(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        let ended = matches!(text(object, "/status/phase"), "Succeeded" | "Failed");
        if ended || text(object, "/spec/nodeName").is_empty() {
            return Some(0);
        }
        requested.or_else(|| Some(int(object, "/spec/terminationGracePeriodSeconds").max(0)))
    }

    fn bind(&self, object: &mut Value, binding: &Value, time: &Value) -> Result<(), String> {
        let present = text(object, "/spec/nodeName");
        let name = text(object, "/metadata/name");
        if object["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
            return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        if !present.is_empty() {
            return Err(format!("pod {name} is already assigned to node {present:?}"));
        }
        within(object, "spec", |spec| set(spec, "nodeName", text(binding, "/target/name")));
        for field in ["annotations", "labels"] {
            let mut copied = entries(&binding["metadata"], &format!("/{field}")).peekable();
            if copied.peek().is_some() {
                within(object, "metadata", |metadata| {
                    within(metadata, field, |present| {
                        copied.for_each(|(name, value)| set(present, name, value.clone()))
                    });
                });
            }
        }
        let scheduled =
            json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": time});
        let mut conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(scheduled);
        within(object, "status", |status| {
            set(status, "conditions", Value::Array(conditions));
            // The nomination is over.
            remove(status, "nominatedNodeName");
        });
        Ok(())
    }

    fn check_parameters(&self, subresource: &str, name: &str, parameters: &[(String, String)]) -> Result<(), Status> {
        reach::check_parameters(subresource, name, parameters)
    }

    fn check_target(&self, subresource: &str, object: &Value, parameters: &[(String, String)]) -> Result<(), Status> {
        reach::check_container(subresource, object, parameters)
    }

    fn reaches(&self, subresource: &str, object: &Value) -> Result<bool, Status> {
        reach::reaches(subresource, object)
    }

    fn at_kubelet(&self, subresource: &str, object: &Value, parameters: &[(String, String)]) -> Option<AtKubelet> {
        kubelet::at_kubelet(subresource, object, parameters)
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        self.references.replace_pod(before, after);
    }
}

fn is_deleting(pod: &Value) -> bool {
    has(pod, "/metadata/deletionTimestamp")
}

/// Returns the quality of service class, which determines the order of eviction
/// (<https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/>).
fn quality_of_service(pod: &Value) -> &'static str {
    const COUNTED: [&str; 2] = ["cpu", "memory"];
    let spec = &pod["spec"];
    let has_own = entries(spec, "/resources/requests").chain(entries(spec, "/resources/limits")).next().is_some();
    // The resources of the whole pod replace those of its containers.
    let own = if has_own { std::slice::from_ref(spec) } else { &[] };
    let each = |name| if has_own { &[] } else { list(spec, name) };
    let containers = || own.iter().chain(each("/containers")).chain(each("/initContainers"));
    let counted = |container: &Value, side: &str| {
        entries(container, side).filter(|(name, amount)| COUNTED.contains(&name.as_str()) && !is_zero(amount)).count()
    };
    let (limits, requests) = ("/resources/limits", "/resources/requests");
    if containers().all(|container| counted(container, limits) + counted(container, requests) == 0) {
        return "BestEffort";
    }
    let guaranteed = containers().all(|container| {
        COUNTED.iter().all(|name| {
            let resources = &container["resources"];
            let limit = &resources["limits"][name];
            !limit.is_null() && *limit == resources["requests"][name]
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

fn is_zero(amount: &Value) -> bool {
    amount.as_str() == Some("0") || amount.as_i64() == Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strategy() -> PodStrategy {
        PodStrategy {
            priorities: Arc::default(),
            runtimes: Arc::default(),
            limits: Arc::default(),
            accounts: Arc::default(),
            topology: Arc::default(),
            references: Arc::default(),
            plugins: Arc::default(),
        }
    }

    fn admitted(mut pod: Value) -> Value {
        strategy().default(&mut pod);
        strategy().prepare_create(&mut pod);
        pod
    }

    fn pod(container: Value) -> Value {
        json!({"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [container]}})
    }

    #[test]
    fn published_defaults_are_filled_in() {
        let pod = admitted(pod(json!({
            "name": "c", "image": "busybox", "ports": [{"containerPort": 80}],
            "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "readinessProbe": {"httpGet": {"port": 80}},
        })));
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["imagePullPolicy"], "Always");
        assert_eq!(container["terminationMessagePath"], "/dev/termination-log");
        assert_eq!(container["ports"][0]["protocol"], "TCP");
        assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
        assert_eq!(container["readinessProbe"]["httpGet"], json!({"port": 80, "path": "/", "scheme": "HTTP"}));
        assert_eq!(container["readinessProbe"]["periodSeconds"], 10);
        for (field, expect) in [
            ("restartPolicy", json!("Always")),
            ("dnsPolicy", json!("ClusterFirst")),
            ("terminationGracePeriodSeconds", json!(30)),
            ("schedulerName", json!("default-scheduler")),
            ("securityContext", json!({})),
            ("enableServiceLinks", json!(true)),
        ] {
            assert_eq!(pod["spec"][field], expect, "{field}");
        }
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
        assert_eq!(strategy().validate(None, &pod), []);
    }

    #[test]
    fn defaults_ignore_fields_of_wrong_types() {
        for spec in [json!("x"), json!([1]), json!({"containers": {"a": 1}}), json!({"containers": ["x", null]})] {
            let pod = admitted(json!({"spec": spec}));
            assert_eq!(pod["spec"].is_object(), spec.is_object());
        }
    }

    #[test]
    fn the_two_fields_with_addresses_agree() {
        let check = |status: Value, expect: Value| {
            let mut pod = json!({"status": status});
            strategy().default(&mut pod);
            assert_eq!(pod["status"], expect);
        };
        let both = json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]});
        check(json!({"podIP": "10.0.0.1"}), both.clone());
        check(json!({"podIPs": [{"ip": "10.0.0.1"}]}), both.clone());
        check(json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.2"}, {"ip": "::2"}]}), both.clone());
        check(both.clone(), both);
        check(json!({"phase": "Pending"}), json!({"phase": "Pending"}));
    }

    #[test]
    fn pull_policy_follows_the_tag() {
        let check = |image: &str, expect: &str| {
            let pod = admitted(pod(json!({"name": "c", "image": image})));
            assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], expect, "{image}");
        };
        check("busybox", "Always");
        check("busybox:latest", "Always");
        check("busybox:1.36", "IfNotPresent");
        check("host:5000/busybox", "Always");
        check("host:5000/busybox:1", "IfNotPresent");
        check("busybox@sha256:abc", "IfNotPresent");
        check("busybox:latest@sha256:abc", "Always");
        check("localhost/a__b/c-d.e", "Always");
        for malformed in ["Busybox", "a b", "/x", "-1", "10%", "..", "a//b"] {
            check(malformed, "IfNotPresent");
        }
    }

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        let check = |resources: Value, expect: &str| {
            let pod = admitted(pod(json!({"name": "c", "image": "i", "resources": resources})));
            assert_eq!(pod["status"]["qosClass"], expect);
        };
        check(json!({}), "BestEffort");
        check(json!({"requests": {"cpu": "1"}}), "Burstable");
        check(json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed");
        check(json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}), "Burstable");
    }

    #[test]
    fn pods_without_a_node_get_no_grace_period() {
        let mut pod = admitted(pod(json!({"name": "c", "image": "i"})));
        assert_eq!(strategy().grace_period(&pod, Some(60)), Some(0));
        pod["spec"]["nodeName"] = "node".into();
        assert_eq!(strategy().grace_period(&pod, None), Some(30));
        pod["spec"]["terminationGracePeriodSeconds"] = 0.into();
        assert_eq!(strategy().grace_period(&pod, None), Some(0));
        assert_eq!(strategy().grace_period(&pod, Some(60)), Some(60), "the period of the request precedes the pod's");
        pod["status"]["phase"] = "Failed".into();
        assert_eq!(strategy().grace_period(&pod, Some(60)), Some(0));
    }
}
