//! The published defaults of pods and pod templates
//! (<https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/>).

use std::collections::BTreeMap;

use crate::{
    amounts::{amounts, of_containers},
    fields::{each, fill, list, present, set, text, within},
    registry::builtin::storage::default_source,
};
use serde_json::{Map, Value, json};

/// The default mode of projected files: 0644.
const FILE_MODE: i64 = 0o644;

/// Sets the defaults of a pod's spec, including that in a template.
pub(in crate::registry::builtin) fn spec(spec: &mut Value) {
    fill(spec, "restartPolicy", "Always");
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "terminationGracePeriodSeconds", 30);
    fill(spec, "schedulerName", "default-scheduler");
    fill(spec, "securityContext", Map::new());
    mirror_service_account(spec);
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        each(spec, field).for_each(container);
    }
    each(spec, "volumes").for_each(volume);
}

/// Gives the containers of a pod in the host's network the host's ports. Those of a template get none.
pub(super) fn host_ports(spec: &mut Value) {
    if spec.get("hostNetwork") != Some(&Value::Bool(true)) {
        return;
    }
    for field in ["containers", "initContainers"] {
        for port in each(spec, field).flat_map(|container| each(container, "ports")) {
            if let Some(number) = port.get("containerPort").cloned() {
                fill(port, "hostPort", number);
            }
        }
    }
}

/// Sets the service account's name and its deprecated alias to the same value.
fn mirror_service_account(spec: &mut Value) {
    let name = [text(spec, "/serviceAccountName"), text(spec, "/serviceAccount")]
        .into_iter()
        .find(|name| !name.is_empty())
        .map(String::from);
    if let Some(name) = name {
        set(spec, "serviceAccountName", name.clone());
        set(spec, "serviceAccount", name);
    }
}

/// Adds the tolerations of failing nodes, unless there are others for them. Admission adds them to new and updated
/// pods.
pub(super) fn tolerate_failing_nodes(spec: &mut Value) {
    fill(spec, "tolerations", json!([]));
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = |toleration: &Value| {
            ["", key].contains(&text(toleration, "/key")) && ["", "NoExecute"].contains(&text(toleration, "/effect"))
        };
        if list(spec, "/tolerations").iter().any(tolerated) {
            continue;
        }
        let toleration = json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        if let Some(tolerations) = spec.get_mut("tolerations").and_then(Value::as_array_mut) {
            tolerations.push(toleration);
        }
    }
}

/// Adds the requirements of `matchLabelKeys` and `mismatchLabelKeys`, whose values are the pod's own, to the label
/// selectors beside them.
pub(super) fn label_keys(pod: &mut Value) {
    let labels = pod["metadata"]["labels"].clone();
    let Some(spec) = pod.get_mut("spec") else { return };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.get_mut("affinity").and_then(|affinity| affinity.get_mut(kind)) else { continue };
        for preferred in each(affinity, "preferredDuringSchedulingIgnoredDuringExecution") {
            present(preferred, "podAffinityTerm", |term| select_label_keys(term, &labels));
        }
        each(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
            .for_each(|term| select_label_keys(term, &labels));
    }
    each(spec, "topologySpreadConstraints").for_each(|constraint| select_label_keys(constraint, &labels));
}

fn select_label_keys(term: &mut Value, labels: &Value) {
    let mut added = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in list(term, &format!("/{field}")).iter().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                added.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if added.is_empty() {
        return;
    }
    present(term, "labelSelector", |selector| {
        let mut all = list(selector, "/matchExpressions").to_vec();
        all.extend(added);
        set(selector, "matchExpressions", all);
    });
}

/// Sets missing resource requests to the limits, and then those of the whole pod to what its containers request.
pub(super) fn requests(spec: &mut Value) {
    each(spec, "containers").for_each(request_limits);
    each(spec, "initContainers").for_each(request_limits);
    whole_pod(spec);
}

/// Sets what is missing in the resources of the whole pod, if these contain something: limits of huge pages as those of
/// the containers, requests as those of the containers, and otherwise as the limits.
fn whole_pod(spec: &mut Value) {
    let is_huge = |name: &str| name.starts_with("hugepages-");
    let (limits, requests) = (amounts(&spec["resources"], "limits"), amounts(&spec["resources"], "requests"));
    if limits.is_empty() && requests.is_empty() {
        return;
    }
    let aggregate = |field| of_containers(spec, |container| amounts(&container["resources"], field));
    let mut all_limits = aggregate("limits");
    all_limits.retain(|name, _| is_huge(name) && !requests.contains_key(name));
    all_limits.extend(limits);
    let mut all_requests = BTreeMap::new();
    if !all_limits.is_empty() {
        let supported = all_limits.clone().into_iter().filter(|(name, _)| is_counted(name) || is_huge(name));
        all_requests.extend(supported);
        all_requests.extend(aggregate("requests").into_iter().filter(|(name, _)| is_counted(name)));
    }
    present(spec, "resources", |resources| {
        for (field, amounts) in [("limits", all_limits), ("requests", all_requests)] {
            if !amounts.is_empty() {
                within(resources, field, |present| {
                    amounts.into_iter().for_each(|(name, amount)| fill(present, &name, amount.shown));
                });
            }
        }
    });
}

/// Returns whether a resource of a whole pod is what its containers request, when it isn't set: not so huge pages.
fn is_counted(name: &str) -> bool {
    matches!(name, "cpu" | "memory")
}

fn request_limits(container: &mut Value) {
    let Value::Object(limits) = container["resources"]["limits"].clone() else { return };
    within(container, "resources", |resources| {
        within(resources, "requests", |requests| {
            for (name, limit) in limits {
                fill(requests, &name, limit);
            }
        });
    });
}

fn container(container: &mut Value) {
    let policy = pull_policy(text(container, "/image"));
    fill(container, "imagePullPolicy", policy);
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    fill(container, "resources", Map::new());
    for port in each(container, "ports") {
        fill(port, "protocol", "TCP");
    }
    for variable in each(container, "env") {
        present(variable, "valueFrom", |source| present(source, "fieldRef", |field| fill(field, "apiVersion", "v1")));
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        present(container, name, probe);
    }
    present(container, "lifecycle", |lifecycle| {
        for hook in ["postStart", "preStop"] {
            present(lifecycle, hook, handler);
        }
    });
}

/// Returns the default pull policy: an image tagged `latest`, explicitly or by default, may change.
fn pull_policy(image: &str) -> &'static str {
    if image.is_empty() {
        return "IfNotPresent";
    }
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let begin = name.rfind('/').map_or(0, |slash| slash + 1);
    let (path, tag) = match name[begin..].split_once(':') {
        Some((last, tag)) => (&name[..begin + last.len()], Some(tag)),
        None => (name, None),
    };
    let is_latest = match (tag, digest) {
        (Some(tag), _) => tag == "latest",
        (None, digest) => digest.is_none(),
    };
    // The tag of a malformed reference is unknown. As in Kubernetes, that isn't `latest`.
    if is_latest && is_repository(path) { "Always" } else { "IfNotPresent" }
}

/// Returns whether a text is the path of a repository, which may begin with a host.
fn is_repository(text: &str) -> bool {
    let (host, path) = match text.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" || host.to_lowercase() != host => {
            (Some(host), path)
        }
        _ => (None, text),
    };
    let is_host = |host: &str| {
        let (name, port) = host.rsplit_once(':').filter(|_| !host.ends_with(']')).unwrap_or((host, "1"));
        let is_label = |label: &str| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            !label.is_empty() && label.bytes().all(is_part) && !label.starts_with('-') && !label.ends_with('-')
        };
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let is_address = address.is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':'));
        (is_address || name.split('.').all(is_label))
            && !port.is_empty()
            && port.bytes().all(|byte| byte.is_ascii_digit())
    };
    // Lowercase words, separated by a dot, one or two underscores, or hyphens.
    let is_part = |part: &str| {
        let mut words = part.split(|other: char| !matches!(other, 'a'..='z' | '0'..='9'));
        let is_separated = |text: &str| {
            let separators =
                text.split(|word: char| matches!(word, 'a'..='z' | '0'..='9')).filter(|one| !one.is_empty());
            separators.into_iter().all(|one| matches!(one, "." | "_" | "__") || one.bytes().all(|byte| byte == b'-'))
        };
        words.next().is_some_and(|first| !first.is_empty())
            && part.ends_with(|last: char| matches!(last, 'a'..='z' | '0'..='9'))
            && is_separated(part)
    };
    host.is_none_or(is_host) && path.split('/').all(is_part)
}

fn probe(probe: &mut Value) {
    handler(probe);
    fill(probe, "timeoutSeconds", 1);
    fill(probe, "periodSeconds", 10);
    fill(probe, "successThreshold", 1);
    fill(probe, "failureThreshold", 3);
}

fn handler(handler: &mut Value) {
    present(handler, "httpGet", |get| {
        fill(get, "path", "/");
        fill(get, "scheme", "HTTP");
    });
    present(handler, "grpc", |grpc| fill(grpc, "service", ""));
}

fn volume(volume: &mut Value) {
    let Value::Object(map) = volume else { return };
    if map.iter().all(|(field, value)| field == "name" || value.is_null()) {
        map.insert("emptyDir".into(), json!({}));
    }
    present(volume, "image", |image| {
        let policy = pull_policy(text(image, "/reference"));
        fill(image, "pullPolicy", policy);
    });
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        present(volume, source, |source| {
            fill(source, "defaultMode", FILE_MODE);
            downward_items(source);
        });
    }
    present(volume, "projected", |projected| {
        for source in each(projected, "sources") {
            present(source, "downwardAPI", downward_items);
            present(source, "serviceAccountToken", |token| fill(token, "expirationSeconds", 3600));
        }
    });
    default_source(volume);
    if let Some(claim) = volume.pointer_mut("/ephemeral/volumeClaimTemplate/spec") {
        fill(claim, "volumeMode", "Filesystem");
    }
}

fn downward_items(source: &mut Value) {
    for item in each(source, "items") {
        present(item, "fieldRef", |field| fill(field, "apiVersion", "v1"));
    }
}

/// Makes the two fields with addresses agree, of which the older one prevails (the conversion of `PodStatus` in
/// Kubernetes).
pub(super) fn addresses(status: &mut Value) {
    let (own, first) = (text(status, "/podIP").to_owned(), text(status, "/podIPs/0/ip").to_owned());
    if !own.is_empty() && own != first {
        set(status, "podIPs", json!([{"ip": own}]));
    } else if own.is_empty() && !first.is_empty() {
        set(status, "podIP", first);
    }
}
