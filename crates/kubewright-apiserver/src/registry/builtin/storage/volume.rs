//! Validation of persistent volumes.

use kubewright_apimachinery::name;
use serde_json::{Map, Value};

use super::{
    super::{
        pod::{
            node_selector_warnings, validate_csi_driver_name, validate_host_path, validate_network_source,
            validate_node_selector, validate_storage_os,
        },
        validation::{
            Errors, Path, Quantity, Shown, entries, entry, field, items, optional_string, string,
            validate_path_no_backsteps, validate_required_name, validate_text,
        },
    },
    VOLUME_MODES, validate_access_modes,
};
use crate::fields::{each, present, set};

/// The labels of nodes that were in beta, with those that replace them.
const STABLE_LABELS: &[(&str, &str)] = &[
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

/// The kinds of volumes in the order in which Kubernetes checks them, with the names in the message about a second one.
const SOURCES: &[(&str, &str)] = &[
    ("hostPath", "hostPath"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("nfs", "nfs"),
    ("rbd", "rbd"),
    ("quobyte", "quobyte"),
    ("cephfs", "cephFS"),
    ("iscsi", "iscsi"),
    ("cinder", "cinder"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("scaleIO", "scaleIO"),
    ("local", "local"),
    ("storageos", "storageos"),
    ("csi", "csi"),
];

/// Checks a persistent volume.
pub(super) fn validate_volume(volume: &Value, errors: &mut Errors) {
    const POLICIES: &[&str] = &["Delete", "Recycle", "Retain"];
    let (spec, path) = (&volume["spec"], &Path::new("spec"));
    if items(spec, "accessModes").is_empty() {
        errors.required(&path.child("accessModes"), "");
    }
    validate_access_modes(spec, path, errors);
    validate_capacity(spec, &path.child("capacity"), errors);
    let policy = string(spec, "persistentVolumeReclaimPolicy");
    if !policy.is_empty() && !POLICIES.contains(&policy) {
        errors.not_supported(&path.child("persistentVolumeReclaimPolicy"), policy, POLICIES);
    }
    if let Some(affinity) = field(spec, "nodeAffinity") {
        let path = path.child("nodeAffinity");
        match field(affinity, "required") {
            Some(required) => validate_node_selector(required, &path.child("required"), errors),
            None => errors.required(&path.child("required"), "must specify required node constraints"),
        }
    }
    validate_sources(spec, path, errors);
    let root = string(&spec["hostPath"], "path");
    if policy == "Recycle" && !root.is_empty() && root.split('/').all(|step| matches!(step, "" | ".")) {
        let why = "may not be 'recycle' for a hostPath mount of '/'";
        errors.forbidden(&path.child("persistentVolumeReclaimPolicy"), why);
    }
    validate_classes(spec, path, errors);
}

/// Checks the spec of a volume in a volume attachment, which only drivers understand.
pub(super) fn validate_inline_volume(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (name, is_set) in
        [("claimRef", field(spec, "claimRef").is_some()), ("capacity", entries(spec, "capacity").next().is_some())]
    {
        if is_set {
            errors.forbidden(&path.child(name), "may not be specified in the context of inline volumes");
        }
    }
    if field(spec, "csi").is_none() {
        errors.required(&path.child("csi"), "has to be specified in the context of inline volumes");
    }
    if items(spec, "accessModes").is_empty() {
        errors.required(&path.child("accessModes"), "");
    }
    validate_access_modes(spec, path, errors);
    if !matches!(string(spec, "persistentVolumeReclaimPolicy"), "" | "Retain") {
        let path = path.child("persistentVolumeReclaimPolicy");
        errors.forbidden(&path, "may only be Retain in the context of inline volumes");
    }
    if field(spec, "nodeAffinity").is_some() {
        errors.forbidden(&path.child("nodeAffinity"), "may not be specified in the context of inline volumes");
    }
    validate_sources(spec, path, errors);
    if !string(spec, "storageClassName").is_empty() {
        errors.forbidden(&path.child("storageClassName"), "may not be specified in the context of inline volumes");
    }
    if !matches!(string(spec, "volumeMode"), "" | "Filesystem") {
        let why = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        errors.forbidden(&path.child("volumeMode"), why);
    }
    validate_attributes_class(spec, path, errors);
}

fn validate_capacity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let number = entries(spec, "capacity").count();
    if number == 0 {
        errors.required(path, "");
    }
    if number != 1 || spec["capacity"].get("storage").is_none() {
        let shown = field(spec, "capacity").cloned().unwrap_or_default();
        errors.not_supported(path, shown, &["storage"]);
    }
    for (name, amount) in entries(spec, "capacity") {
        let (path, quantity) = (path.key(name), Quantity::read(amount));
        if quantity.value() < 0 {
            errors.invalid(&path, quantity.value(), "must be a valid resource quantity");
        }
        if quantity <= Quantity::default() {
            errors.invalid(&path, amount.clone(), "must be greater than zero");
        }
    }
}

fn validate_sources(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut sources = 0;
    for (kind, name_in_message) in SOURCES {
        let Some(source) = field(spec, kind) else { continue };
        sources += 1;
        // As in Kubernetes, a FlexVolume may stand beside another volume.
        if sources > 1 && *kind != "flexVolume" {
            errors.forbidden(&path.child(name_in_message), "may not specify more than 1 volume type");
            continue;
        }
        let at = path.child(kind);
        match *kind {
            "hostPath" => validate_host_path(source, &at, errors),
            "local" => {
                match string(source, "path") {
                    "" => errors.required(&at.child("path"), ""),
                    place => validate_path_no_backsteps(place, &at.child("path"), errors),
                }
                if field(spec, "nodeAffinity").is_none() {
                    errors.required(&path.child("nodeAffinity"), "Local volume requires node affinity");
                }
            }
            "storageos" => validate_storage_os(source, true, &at, errors),
            "csi" => validate_csi(source, &at, errors),
            _ => validate_network_source(kind, source, true, path, errors),
        }
    }
    if sources == 0 {
        errors.required(path, "must specify a volume type");
    }
}

fn validate_csi(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_csi_driver_name(string(source, "driver"), &path.child("driver"), errors);
    if string(source, "volumeHandle").is_empty() {
        errors.required(&path.child("volumeHandle"), "");
    }
    for name in
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"]
    {
        let Some(reference) = field(source, name) else { continue };
        let path = path.child(name);
        validate_required_name(string(reference, "name"), name::dns1123_subdomain, &path.child("name"), errors);
        let namespace = string(reference, "namespace");
        validate_required_name(namespace, name::dns1123_label, &path.child("namespace"), errors);
    }
}

fn validate_classes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let class = string(spec, "storageClassName");
    if !class.is_empty() {
        validate_text(class, name::dns1123_subdomain, &path.child("storageClassName"), errors);
    }
    if let Some(mode) = optional_string(spec, "volumeMode").filter(|mode| !VOLUME_MODES.contains(mode)) {
        errors.not_supported(&path.child("volumeMode"), mode, VOLUME_MODES);
    }
    validate_attributes_class(spec, path, errors);
}

fn validate_attributes_class(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(class) = optional_string(spec, "volumeAttributesClassName") else { return };
    let at = path.child("volumeAttributesClassName");
    if class.is_empty() {
        errors.required(&at, "an empty string is disallowed");
    } else {
        validate_text(class, name::dns1123_subdomain, &at, errors);
    }
    if field(spec, "csi").is_none() {
        errors.required(&path.child("csi"), "has to be specified when using volumeAttributesClassName");
    }
}

/// Returns the warnings about a volume.
pub(super) fn warnings(volume: &Value) -> Vec<String> {
    const ANNOTATIONS: &[(&str, &str)] = &[
        (
            "volume.beta.kubernetes.io/storage-class",
            "deprecated since v1.8; use \"storageClassName\" attribute instead",
        ),
        ("volume.beta.kubernetes.io/mount-options", "deprecated since v1.31; use \"mountOptions\" attribute instead"),
    ];
    const SOURCES: &[(&str, &str, &str)] = &[
        ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
        ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ];
    let spec = &volume["spec"];
    let mut warnings = Vec::new();
    for (key, why) in ANNOTATIONS {
        if entry(&volume["metadata"], "annotations", key).is_some() {
            warnings.push(format!("metadata.annotations[{key}]: {why}"));
        }
    }
    if string(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        let why = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic \
                   provisioning.";
        warnings.push(format!("spec.persistentVolumeReclaimPolicy: {why}"));
    }
    node_selector_warnings(&spec["nodeAffinity"]["required"], &Path::new("spec.nodeAffinity.required"), &mut warnings);
    for (name, shown, why) in SOURCES {
        if field(spec, name).is_some() {
            warnings.push(format!("spec.{shown}: {why}"));
        }
    }
    warnings
}

/// Checks an updated volume, whose source can't change.
pub(super) fn validate_volume_update(old: &Value, new: &Value, errors: &mut Errors) {
    // Kubernetes checks the volume twice.
    validate_volume(new, errors);
    validate_volume(new, errors);
    let source = |volume: &Value| {
        let mut fields: Map<_, _> = entries(volume, "spec")
            .filter(|(name, value)| SOURCES.iter().any(|(kind, _)| kind == name) && !value.is_null())
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect();
        // The secret for expansion can be added later.
        if field(&old["spec"]["csi"], "controllerExpandSecretRef").is_none()
            && let Some(csi) = fields.get_mut("csi").and_then(Value::as_object_mut)
        {
            csi.remove("controllerExpandSecretRef");
        }
        fields
    };
    if source(old) != source(new) {
        let path = Path::new("spec.persistentvolumesource");
        errors.forbidden(&path, "spec.persistentvolumesource is immutable after creation\n");
    }
    let (old, new) = (&old["spec"], &new["spec"]);
    if field(old, "volumeMode") != field(new, "volumeMode") {
        errors.invalid(&Path::new("volumeMode"), new["volumeMode"].clone(), "field is immutable");
    }
    if field(old, "nodeAffinity").is_some_and(|affinity| !is_same_affinity(affinity, &new["nodeAffinity"])) {
        let why = "field is immutable, except for updating from beta label to GA";
        errors.invalid(&Path::new("nodeAffinity"), shown_affinity(&new["nodeAffinity"]), why);
    }
    if field(old, "volumeAttributesClassName").is_some() && field(new, "volumeAttributesClassName").is_none() {
        let path = Path::new("spec.volumeAttributesClassName");
        errors.forbidden(&path, "update from non-nil value to nil is forbidden");
    }
}

/// Returns whether the affinity of a volume is unchanged, apart from keys that replace those of beta versions.
fn is_same_affinity(old: &Value, new: &Value) -> bool {
    let mut old = old.clone();
    let terms = |affinity: &Value| items(&affinity["required"], "nodeSelectorTerms").to_vec();
    present(&mut old, "required", |required| {
        for (term, new) in each(required, "nodeSelectorTerms").zip(terms(new)) {
            for name in ["matchExpressions", "matchFields"] {
                for (requirement, new) in each(term, name).zip(items(&new, name)) {
                    // As in Kubernetes, an unknown key can become empty.
                    let stable = STABLE_LABELS.iter().find(|(beta, _)| *beta == string(requirement, "key"));
                    if string(new, "key") == stable.map_or("", |(_, stable)| *stable) {
                        set(requirement, "key", new["key"].clone());
                    }
                }
            }
        }
    });
    old == *new
}

/// Shows the node affinity of a volume in the form of Kubernetes' internal type.
fn shown_affinity(affinity: &Value) -> Shown {
    let requirements = |term: &Value, name: &str| match field(term, name) {
        None => Value::Null.into(),
        Some(_) => Shown::list(items(term, name).iter().map(|requirement| {
            Shown::object([
                ("Key", string(requirement, "key").into()),
                ("Operator", string(requirement, "operator").into()),
                ("Values", Shown::nullable(requirement.get("values"))),
            ])
        })),
    };
    if affinity.is_null() {
        return Value::Null.into();
    }
    let required = field(affinity, "required").map_or_else(
        || Value::Null.into(),
        |required| {
            let terms = items(required, "nodeSelectorTerms").iter().map(|term| {
                Shown::object([
                    ("MatchExpressions", requirements(term, "matchExpressions")),
                    ("MatchFields", requirements(term, "matchFields")),
                ])
            });
            Shown::object([("NodeSelectorTerms", Shown::list(terms))])
        },
    );
    Shown::object([("Required", required)])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_need_one_source() {
        let check = |change: &dyn Fn(&mut Value), expected: &[&str]| {
            let mut volume = json!({"spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"},
            }});
            change(&mut volume["spec"]);
            let causes = Errors::collect(|errors| validate_volume(&volume, errors));
            assert_eq!(causes.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
        };
        check(&|_| {}, &[]);
        check(&|spec| spec["hostPath"] = Value::Null, &["spec: Required value: must specify a volume type"]);
        check(
            &|spec| spec["nfs"] = json!({"server": "s", "path": "/p"}),
            &["spec.nfs: Forbidden: may not specify more than 1 volume type"],
        );
        check(
            &|spec| spec["capacity"]["storage"] = json!("-1"),
            &[
                "spec.capacity[storage]: Invalid value: -1: must be a valid resource quantity",
                "spec.capacity[storage]: Invalid value: \"-1\": must be greater than zero",
            ],
        );
    }
}
