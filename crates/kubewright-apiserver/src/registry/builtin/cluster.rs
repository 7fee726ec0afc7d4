//! Namespaces and nodes, and the columns of service accounts.

use std::{collections::BTreeSet, sync::Arc};

use kubewright_apimachinery::{cidr::Cidr, decode, go_format, name, status::Cause};
use serde_json::{Value, json};

use super::{
    columns::{self, NONE, age},
    pod::{validate_quantity, validate_taint_effect},
    topology::NodeTopology,
    validation::{
        Errors, Path, Shown, boolean, entries, entry, field, items, string, strings, validate_cidr,
        validate_label_name, validate_text,
    },
};
use crate::{
    fields::{fill, flag, has, list, remove, set, text, within},
    object_type::ObjectType,
    plugins::{AdmissionPlugin, Plugins},
    registry::{Column, Strategy},
};

/// The taint of a node that is not known to be ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The namespaces that can't be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The strategy of namespaces. The finalizer in `spec` keeps a namespace until a controller has deleted its content.
#[derive(Debug)]
pub(super) struct NamespaceStrategy;

impl Strategy for NamespaceStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "status", |status| fill(status, "phase", "Active"));
        let name = text(object, "/metadata/name").to_owned();
        // The label of a generated name is set at creation.
        if !name.is_empty() {
            label_by_name(object, &name);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        let name = text(object, "/metadata/name").to_owned();
        label_by_name(object, &name);
        within(object, "spec", |spec| {
            let mut finalizers = list(spec, "/finalizers").to_vec();
            if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
                finalizers.push("kubernetes".into());
            }
            set(spec, "finalizers", finalizers);
        });
        set(object, "status", json!({"phase": "Active"}));
    }

    /// Preserves the finalizers, which only the `finalize` subresource changes.
    fn prepare_update(&self, old: &Value, new: &mut Value) {
        set(new, "spec", old["spec"].clone());
    }

    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
        Errors::collect(|errors| {
            let path = Path::new("spec.finalizers");
            for finalizer in strings(&new["spec"], "finalizers") {
                validate_text(finalizer, name::label_key, &path, errors);
                if !finalizer.contains('/') && !STANDARD.contains(&finalizer) {
                    let why = "name is neither a standard finalizer name nor is it fully qualified";
                    errors.invalid(&path, finalizer, why);
                }
            }
        })
    }

    fn validate_status(&self, _old: &Value, new: &Value) -> Vec<Cause> {
        let phase = string(&new["status"], "phase");
        let (expected, why) = if has(new, "/metadata/deletionTimestamp") {
            ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
        } else {
            ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
        };
        if phase == expected { Vec::new() } else { vec![Cause::invalid("status.Phase", &phase.into(), why)] }
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn forbids_deletion(&self, object: &Value) -> Option<&'static str> {
        IMMORTAL.contains(&text(object, "/metadata/name")).then_some("this namespace may not be deleted")
    }

    fn prepare_delete(&self, object: &mut Value) {
        within(object, "status", |status| set(status, "phase", "Terminating"));
    }

    /// Keeps a namespace until its controller has deleted its content.
    fn is_held(&self, object: &Value) -> bool {
        !list(object, "/spec/finalizers").is_empty()
    }

    fn name_rule(&self) -> fn(&str) -> Vec<String> {
        name::dns1123_label
    }

    fn has_generation(&self) -> bool {
        false
    }
}

fn label_by_name(namespace: &mut Value, name: &str) {
    within(namespace, "metadata", |metadata| {
        within(metadata, "labels", |labels| set(labels, "kubernetes.io/metadata.name", name));
    });
}

pub(super) fn namespace_columns() -> Vec<Column> {
    vec![columns::string("Status", |object, _| text(object, "/status/phase").into()), age()]
}

/// The strategy of nodes.
#[derive(Debug)]
pub(super) struct NodeStrategy {
    /// The topology labels of all nodes, which this strategy keeps up to date.
    pub(super) topology: Arc<NodeTopology>,
    pub(super) plugins: Arc<Plugins>,
}

impl Strategy for NodeStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            // The older of the two fields prevails, and equals the first range of the newer one.
            let (range, first) = (string(spec, "podCIDR"), strings(spec, "podCIDRs").next());
            match (range, first) {
                ("", Some(first)) => {
                    let first = first.to_owned();
                    set(spec, "podCIDR", first);
                }
                (range, first) if !range.is_empty() && first != Some(range) => {
                    let ranges = json!([range]);
                    set(spec, "podCIDRs", ranges);
                }
                _ => {}
            }
        });
        within(object, "status", |status| {
            if let Some(capacity) = status.get("capacity").filter(|value| value.is_object()).cloned() {
                fill(status, "allocatable", capacity);
            }
        });
    }

    /// A kubelet registers its node with a status.
    fn keeps_new_status(&self) -> bool {
        true
    }

    /// Taints a new node, which isn't known to be ready, as Kubernetes' admission plugin TaintNodesByCondition does.
    fn admit(&self, old: Option<&Value>, object: &mut Value) -> Result<(), String> {
        let is_not_ready = |taint: &Value| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule";
        let mut taints = list(object, "/spec/taints").to_vec();
        let taints_new = old.is_none() && self.plugins.has(AdmissionPlugin::TaintNodesByCondition);
        if taints_new && !taints.iter().any(is_not_ready) {
            taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
            within(object, "spec", |spec| set(spec, "taints", taints));
        }
        Ok(())
    }

    /// Drops the sources of configuration, which belong to a feature that Kubernetes removed.
    fn prepare_create(&self, object: &mut Value) {
        drop_config(&Value::Null, object, "spec", "configSource");
        drop_config(&Value::Null, object, "status", "config");
    }

    fn prepare_update(&self, old: &Value, new: &mut Value) {
        drop_config(old, new, "spec", "configSource");
    }

    fn prepare_status(&self, _subresource: &str, old: &Value, new: &mut Value, _now: &Value) {
        drop_config(old, new, "status", "config");
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| {
            validate_node(new, errors);
            if let Some(old) = old {
                validate_node_update(old, new, errors);
            }
        })
    }

    fn validate_status(&self, old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate_node_update(old, new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn warnings(&self, _old: Option<&Value>, new: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        if field(&new["spec"], "configSource").is_some() {
            warnings.push("spec.configSource: the feature is removed".to_owned());
        }
        if !string(&new["spec"], "externalID").is_empty() {
            warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        warnings
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        self.topology.replace(before, after);
    }
}

/// Removes a field of the new object, unless the old one has it.
fn drop_config(old: &Value, new: &mut Value, part: &str, name: &str) {
    if field(&old[part], name).is_none()
        && let Some(part) = new.get_mut(part)
    {
        remove(part, name);
    }
}

fn validate_node(node: &Value, errors: &mut Errors) {
    validate_avoided_pods(node, errors);
    validate_taints(node, errors);
    validate_node_resources(node, errors);
    validate_features(node, errors);
    let spec = &node["spec"];
    let path = Path::new("spec.podCIDRs");
    let mut families = Vec::new();
    for (index, range) in strings(spec, "podCIDRs").enumerate() {
        validate_cidr(range, &path.index(index), errors);
        families.push((range, Cidr::parse(range).map(|range| range.address.is_ipv6())));
    }
    if families.len() < 2 {
        return;
    }
    let malformed = families.iter().enumerate().find(|(_, (_, is_ipv6))| is_ipv6.is_none());
    if let Some((index, (range, _))) = malformed {
        let why = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{index}]: <nil> (invalid CIDR \
             address: {range})"
        );
        errors.internal(&path, &why);
    }
    if malformed.is_some() || families.len() > 2 || families[0].1 == families[1].1 {
        let ranges = items(spec, "podCIDRs").to_vec();
        errors.invalid(&path, ranges, "may specify no more than one CIDR for each IP family");
    }
}

fn validate_node_update(old: &Value, new: &Value, errors: &mut Errors) {
    validate_avoided_pods(new, errors);
    validate_node_resources(new, errors);
    validate_features(new, errors);
    let mut addresses = Vec::new();
    let path = Path::new("status.addresses");
    for (index, address) in items(&new["status"], "addresses").iter().enumerate() {
        if addresses.contains(&address) {
            let shown = [("Type", "type"), ("Address", "address")];
            let shown = Shown::object(shown.map(|(shown, field)| (shown, string(address, field).into())));
            errors.duplicate(&path.index(index), shown);
        }
        addresses.push(address);
    }
    let (before, after) = (&old["spec"], &new["spec"]);
    let ranges = items(before, "podCIDRs");
    if !ranges.is_empty() && ranges != items(after, "podCIDRs") {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        errors.forbidden(&Path::new("spec.podCIDRs"), why);
    }
    let provider = string(before, "providerID");
    if !provider.is_empty() && provider != string(after, "providerID") {
        let why = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden(&Path::new("spec.providerID"), why);
    }
    validate_taints(new, errors);
    if string(before, "externalID") != string(after, "externalID") {
        errors.forbidden(&Path::new("spec.externalID"), "may not be updated");
    }
}

/// Checks the features that a node declares, which are sorted.
fn validate_features(node: &Value, errors: &mut Errors) {
    const MAX_NAME: usize = 253;
    let path = Path::new("status.declaredFeatures");
    let mut before: Option<&str> = None;
    for (index, feature) in strings(&node["status"], "declaredFeatures").enumerate() {
        let path = path.index(index);
        match before {
            Some(before) if before == feature => errors.duplicate(&path, feature),
            Some(before) if before > feature => errors.invalid(&path, feature, "list must be sorted alphabetically"),
            _ => {}
        }
        before = Some(feature);
        let wrong = go_format::quoted(feature);
        if feature.len() > MAX_NAME {
            let why = format!("invalid feature name {wrong}: must be no more than {MAX_NAME} characters");
            errors.invalid(&path, feature, &why);
        } else if !is_feature(feature) {
            let why = format!(
                "invalid feature name {wrong}: must start with an UpperCamelCase segment, with subsequent segments \
                 separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters \
                 and slashes"
            );
            errors.invalid(&path, feature, &why);
        }
    }
}

/// Returns whether a text is the name of a feature: letters and digits between slashes, which begin with a letter, in
/// upper case at the beginning.
fn is_feature(name: &str) -> bool {
    let is_segment = |segment: &str| {
        segment.starts_with(|c: char| c.is_ascii_alphabetic()) && segment.chars().all(|c| c.is_ascii_alphanumeric())
    };
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.split('/').all(is_segment)
}

/// Checks the annotation about controllers whose pods the node had better not run, an `AvoidPods` in JSON.
fn validate_avoided_pods(node: &Value, errors: &mut Errors) {
    const KEY: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";
    let annotation = entry(&node["metadata"], "annotations", KEY).filter(|annotation| !annotation.is_empty());
    let Some(annotation) = annotation else { return };
    let annotations = Path::new("metadata.annotations");
    let avoided = match avoided_pods(annotation) {
        Ok(avoided) => avoided,
        Err(why) => return errors.invalid(&annotations.child("AvoidPods"), KEY, &why),
    };
    let path = annotations.child(KEY);
    for (index, one) in items(&avoided, "preferAvoidPods").iter().enumerate() {
        let path = path.index(index);
        let path = path.child("PodSignature");
        match field(&one["podSignature"], "podController") {
            None => errors.required(&path, ""),
            Some(controller) if !boolean(controller, "controller") => {
                let path = path.child("PodController");
                errors.invalid(&path.child("Controller"), false, "must point to a controller");
            }
            Some(_) => {}
        }
    }
}

/// Parses an `AvoidPods`, with the errors of Go's decoder.
fn avoided_pods(text: &str) -> Result<Value, String> {
    let mut avoided = decode::json(text.as_bytes()).map_err(|why| why.to_string())?.value;
    let kind = |value: &Value| match value {
        Value::Null | Value::Object(_) => None,
        Value::Bool(_) => Some("bool"),
        Value::Number(_) => Some("number"),
        Value::String(_) => Some("string"),
        Value::Array(_) => Some("array"),
    };
    if let Some(kind) = kind(&avoided) {
        return Err(format!("json: cannot unmarshal {kind} into Go value of type v1.AvoidPods"));
    }
    if let Some(ty) = ObjectType::of("", "v1", "AvoidPods") {
        ty.decode(&mut avoided)?;
    }
    Ok(avoided)
}

/// Checks the amounts of resources in the status.
fn validate_node_resources(node: &Value, errors: &mut Errors) {
    let status = Path::new("status");
    for field in ["capacity", "allocatable"] {
        let path = status.child(field);
        for (name, amount) in entries(&node["status"], field) {
            validate_quantity(name, amount, &path.child(name), errors);
        }
    }
}

/// Checks taints, which Kubernetes reports as if they were metadata.
fn validate_taints(node: &Value, errors: &mut Errors) {
    let mut seen = Vec::new();
    let path = Path::new("metadata.taints");
    for (index, taint) in items(&node["spec"], "taints").iter().enumerate() {
        let path = path.index(index);
        let (key, value, effect) = (string(taint, "key"), string(taint, "value"), string(taint, "effect"));
        validate_label_name(key, &path.child("key"), errors);
        let wrong = name::label_value(value);
        if !wrong.is_empty() {
            errors.invalid(&path.child("value"), value, &wrong.join(";"));
        }
        if effect.is_empty() {
            errors.required(&path.child("effect"), "");
        } else {
            validate_taint_effect(effect, &path.child("effect"), errors);
        }
        if seen.contains(&(effect, key)) {
            let fields = [("Key", "key"), ("Value", "value"), ("Effect", "effect")];
            let fields = fields.map(|(shown, field)| (shown, string(taint, field).into()));
            let time = [("TimeAdded", Shown::nullable(taint.get("timeAdded")))];
            let shown = Shown::object(fields.into_iter().chain(time));
            errors.duplicate_because(&path, shown, "taints must be unique by key and effect pair");
        }
        seen.push((effect, key));
    }
}

pub(super) fn node_columns() -> Vec<Column> {
    vec![
        columns::string("Status", |node, _| node_state(node).into()),
        columns::string("Roles", |node, _| roles(node).into()),
        age(),
        columns::string("Version", |node, _| text(node, "/status/nodeInfo/kubeletVersion").into()),
        columns::string("Internal-IP", |node, _| node_address(node, "InternalIP")).wide(),
        columns::string("External-IP", |node, _| node_address(node, "ExternalIP")).wide(),
        columns::string("OS-Image", |node, _| known(node, "osImage")).wide(),
        columns::string("Kernel-Version", |node, _| kernel(node).into()).wide(),
        columns::string("Container-Runtime", |node, _| known(node, "containerRuntimeVersion")).wide(),
    ]
}

/// Returns what the node says about itself, if it does.
fn known(node: &Value, field: &str) -> Value {
    said(node, field).into()
}

fn said<'a>(node: &'a Value, field: &str) -> &'a str {
    match text(&node["status"]["nodeInfo"], &format!("/{field}")) {
        "" => "<unknown>",
        value => value,
    }
}

fn kernel(node: &Value) -> String {
    let version = said(node, "kernelVersion");
    match text(node, "/status/nodeInfo/architecture") {
        "" => version.into(),
        architecture => format!("{version} ({architecture})"),
    }
}

fn node_state(node: &Value) -> String {
    let ready = list(node, "/status/conditions").iter().find(|condition| text(condition, "/type") == "Ready");
    let state = match ready.map(|condition| text(condition, "/status")) {
        None => "Unknown",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    };
    if flag(node, "/spec/unschedulable") { format!("{state},SchedulingDisabled") } else { state.into() }
}

fn roles(node: &Value) -> String {
    let roles: BTreeSet<_> = entries(&node["metadata"], "labels")
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => value.as_str().filter(|_| key == "kubernetes.io/role"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() { NONE.into() } else { Vec::from_iter(roles).join(",") }
}

fn node_address(node: &Value, kind: &str) -> Value {
    let addresses = list(node, "/status/addresses");
    let found = addresses.iter().find(|address| text(address, "/type") == kind);
    found.map_or(NONE, |address| text(address, "/address")).into()
}

pub(super) fn service_account_columns() -> Vec<Column> {
    vec![age()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_active_labelled_and_finalized_by_its_controller() {
        let mut namespace = json!({"metadata": {"name": "n"}});
        NamespaceStrategy.default(&mut namespace);
        NamespaceStrategy.prepare_create(&mut namespace);
        assert_eq!(namespace["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "n"}));
        assert_eq!(namespace["spec"], json!({"finalizers": ["kubernetes"]}));
        assert_eq!(namespace["status"], json!({"phase": "Active"}));
        assert!(NamespaceStrategy.is_held(&namespace) && !NamespaceStrategy.is_held(&json!({})));
        let mut update = json!({"metadata": {"name": "n"}, "spec": {"finalizers": []}, "status": {"phase": "Active"}});
        NamespaceStrategy.prepare_update(&namespace, &mut update);
        assert_eq!(update["spec"], namespace["spec"]);
    }

    #[test]
    fn declared_features_are_sorted_names() {
        let check = |features: Value, expect: &[&str]| {
            let node = json!({"status": {"declaredFeatures": features}});
            let causes = Errors::collect(|errors| validate_features(&node, errors));
            let found: Vec<_> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
            assert_eq!(found.len(), expect.len(), "{found:?}");
            for (found, expect) in found.iter().zip(expect) {
                assert!(found.starts_with(&format!("status.declaredFeatures{expect}")), "{found}");
            }
        };
        check(json!(["A", "B/c1", "Ba"]), &[]);
        check(json!(["A", "A"]), &["[1]: Duplicate value: \"A\""]);
        check(json!(["B", "A"]), &["[1]: Invalid value: \"A\": list must be sorted alphabetically"]);
        for name in ["", "a", "A b", "A/", "A/1", "A.b"] {
            let expect = format!("[0]: Invalid value: {name:?}: invalid feature name {name:?}: must start with an");
            check(json!([name]), &[&expect]);
        }
        check(json!(["A".repeat(254)]), &["[0]: Invalid value: \"AAA"]);
    }

    #[test]
    fn kernels_are_shown_with_their_architecture() {
        let shown = |info: Value| kernel(&json!({"status": {"nodeInfo": info}}));
        assert_eq!(shown(json!({"kernelVersion": "6.1", "architecture": "amd64"})), "6.1 (amd64)");
        assert_eq!(shown(json!({"architecture": "amd64"})), "<unknown> (amd64)");
        assert_eq!(shown(json!({"kernelVersion": "6.1", "architecture": ""})), "6.1");
    }

    #[test]
    fn nodes_have_no_source_of_configuration() {
        let strategy = NodeStrategy { topology: Arc::default(), plugins: Arc::default() };
        let (spec, status) = (json!({"configSource": {"configMap": {}}}), json!({"config": {"active": {}}}));
        let with = json!({"spec": spec, "status": status});
        let mut node = with.clone();
        strategy.prepare_create(&mut node);
        let without = json!({"spec": {}, "status": {}});
        assert_eq!(node, without);
        let mut node = with.clone();
        strategy.prepare_status("status", &without, &mut node, &Value::Null);
        assert_eq!(node, json!({"spec": spec, "status": {}}));
        let mut node = with.clone();
        strategy.prepare_status("status", &with, &mut node, &Value::Null);
        assert_eq!(node, with);
    }

    #[test]
    fn the_pods_that_a_node_avoids_have_controllers() {
        let check = |annotation: &str, expected: &[&str]| {
            let annotations = json!({"scheduler.alpha.kubernetes.io/preferAvoidPods": annotation});
            let node = json!({"metadata": {"annotations": annotations}});
            let causes = Errors::collect(|errors| validate_avoided_pods(&node, errors));
            let causes = causes.iter().map(|cause| cause.to_string().replace("scheduler.alpha.kubernetes.io/", ""));
            let causes: Vec<_> = causes.map(|cause| cause.replace("metadata.annotations.", "")).collect();
            assert_eq!(causes, expected, "{annotation}");
        };
        check("null", &[]);
        check(r#"{"preferAvoidPods":[{"podSignature":{"podController":{"controller":true}}}]}"#, &[]);
        let why = "AvoidPods: Invalid value: \"preferAvoidPods\"";
        check("x", &[&format!("{why}: invalid character 'x' looking for beginning of value")]);
        check("{} x", &[&format!("{why}: invalid character 'x' after top-level value")]);
        check("[]", &[&format!("{why}: json: cannot unmarshal array into Go value of type v1.AvoidPods")]);
        check(r#"{"preferAvoidPods":[{}]}"#, &["preferAvoidPods[0].PodSignature: Required value"]);
        check(
            r#"{"preferAvoidPods":[{"podSignature":{"podController":{"controller":false}}}]}"#,
            &[
                "preferAvoidPods[0].PodSignature.PodController.Controller: Invalid value: false: must point to a controller",
            ],
        );
    }

    #[test]
    fn nodes_show_state_and_roles() {
        let node = json!({
            "metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "agent"}},
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            },
        });
        assert_eq!(node_state(&node), "Ready,SchedulingDisabled");
        assert_eq!(roles(&node), "agent,worker");
        let twice = json!({"node-role.kubernetes.io/agent": "", "kubernetes.io/role": "agent"});
        assert_eq!(roles(&json!({"metadata": {"labels": twice}})), "agent");
        assert_eq!(node_address(&node, "InternalIP"), "127.0.0.1");
        assert_eq!(node_state(&json!({})), "Unknown");
    }
}
