//! Updates and deletions of built-in kinds, where they differ from kind to kind. The lists follow the storage and the
//! strategies in Kubernetes' `pkg/registry`.

use std::sync::Arc;

use kubewright_apimachinery::apply::FieldSet;

use crate::registry::{Dependents, Lifecycle, PART_METADATA, USER_METADATA};

/// The group and plural name of a kind.
type Kind = (&'static str, &'static str);

/// The kinds whose updates need `metadata.resourceVersion`.
const CONDITIONAL: &[Kind] = &[
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
    ("certificates.k8s.io", "clustertrustbundles"),
    ("certificates.k8s.io", "podcertificaterequests"),
    ("coordination.k8s.io", "leasecandidates"),
    ("coordination.k8s.io", "leases"),
    ("node.k8s.io", "runtimeclasses"),
    ("policy", "poddisruptionbudgets"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "csistoragecapacities"),
    ("storage.k8s.io", "volumeattachments"),
];

/// The kinds whose objects an update creates if they don't exist.
const CREATED_BY_UPDATE: &[Kind] = &[
    ("", "endpoints"),
    ("", "events"),
    ("", "limitranges"),
    ("", "services"),
    ("coordination.k8s.io", "leases"),
    ("events.k8s.io", "events"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
    ("scheduling.k8s.io", "priorityclasses"),
];

/// The kinds whose objects an apply of the status creates if they don't exist.
const CREATED_BY_STATUS: &[Kind] = &[("", "services"), ("admissionregistration.k8s.io", "validatingadmissionpolicies")];

/// The kinds whose deletion answers the removed object.
const RETURN_DELETED: &[Kind] = &[
    ("", "namespaces"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("", "pods"),
    ("", "podtemplates"),
    ("", "resourcequotas"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("resource.k8s.io", "deviceclasses"),
    ("resource.k8s.io", "resourceclaims"),
    ("resource.k8s.io", "resourceclaimtemplates"),
    ("resource.k8s.io", "resourceslices"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "volumeattachments"),
    ("storage.k8s.io", "volumeattributesclasses"),
];

/// The kinds whose objects a controller removes, when nothing is left in their scope.
const REMOVED_BY_CONTROLLER: &[Kind] = &[("", "namespaces"), ("apiextensions.k8s.io", "customresourcedefinitions")];

/// The metadata that an update of the status keeps, for kinds that keep any.
const STATUS_KEEPS: &[(Kind, &[&str])] = &[
    (("", "pods"), &["ownerReferences", "deletionTimestamp"]),
    (("admissionregistration.k8s.io", "validatingadmissionpolicies"), PART_METADATA),
    (("apiregistration.k8s.io", "apiservices"), USER_METADATA),
    (("apps", "deployments"), &["labels"]),
    (("flowcontrol.apiserver.k8s.io", "flowschemas"), UNCHECKED_METADATA),
    (("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"), UNCHECKED_METADATA),
    (("networking.k8s.io", "servicecidrs"), PART_METADATA),
    (("resource.k8s.io", "resourceclaims"), PART_METADATA),
    (("storage.k8s.io", "volumeattachments"), PART_METADATA),
];

/// The metadata that an update of the status keeps, of kinds whose metadata isn't checked then.
const UNCHECKED_METADATA: &[&str] =
    &["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// The fields that writes of certificate signing requests don't change, by subresource.
const REQUEST_RESETS: &[(&str, &[&str])] = &[
    ("", &["spec", "status"]),
    ("status", &["spec", "status.conditions"]),
    ("approval", &["spec", "status.certificate"]),
];

/// The kinds whose objects are stored under a name other than the plural.
const REGISTRY_PATHS: &[(Kind, &str)] = &[
    (("", "endpoints"), "services/endpoints"),
    (("", "nodes"), "minions"),
    (("", "replicationcontrollers"), "controllers"),
    (("", "services"), "services/specs"),
    (("apiextensions.k8s.io", "customresourcedefinitions"), "apiextensions.k8s.io/customresourcedefinitions"),
    (("apiregistration.k8s.io", "apiservices"), "apiregistration.k8s.io/apiservices"),
    (("networking.k8s.io", "ingresses"), "ingress"),
];

/// The groups whose kinds Kubernetes doesn't validate by the rules of the core group, which requires a domain in the
/// names of finalizers.
const UNQUALIFIED_FINALIZERS: [&str; 6] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "policy",
];

/// The kinds of which an update may set a prefix for generated names that doesn't fit the rule of their names.
const ANY_PREFIX: &[Kind] = &[
    ("", "events"),
    ("", "podtemplates"),
    ("", "replicationcontrollers"),
    ("", "resourcequotas"),
    ("", "services"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("batch", "cronjobs"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("coordination.k8s.io", "leases"),
    ("events.k8s.io", "events"),
    ("networking.k8s.io", "networkpolicies"),
    ("networking.k8s.io", "servicecidrs"),
    ("policy", "poddisruptionbudgets"),
    ("resource.k8s.io", "deviceclasses"),
    ("resource.k8s.io", "resourceslices"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("storage.k8s.io", "csidrivers"),
];

/// The kinds that Kubernetes doesn't cache.
const UNCACHED: &[Kind] = &[("", "events"), ("events.k8s.io", "events")];

const JOB_WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background \
                           to remove them or set propagationPolicy=Orphan to suppress this warning";

/// Returns the rules of a built-in kind, which may be served in another group than its objects are stored in.
pub(super) fn of(group: &str, plural: &str) -> Lifecycle {
    let kind = (group, plural);
    let status_keeps = STATUS_KEEPS.iter().find(|(of, _)| *of == kind).map_or(&[][..], |(_, fields)| fields);
    let resets = if status_keeps.starts_with(USER_METADATA) {
        FieldSet::of(["metadata", "spec"])
    } else {
        let metadata: Vec<_> = status_keeps.iter().map(|field| format!("metadata.{field}")).collect();
        FieldSet::of(metadata.iter().map(String::as_str).chain(["spec"]))
    };
    let path = REGISTRY_PATHS.iter().find(|(of, _)| *of == kind).map_or(plural, |(_, path)| path);
    Lifecycle {
        unconditional_update: !CONDITIONAL.contains(&kind),
        created_by_update: CREATED_BY_UPDATE.contains(&kind),
        created_by_status: CREATED_BY_STATUS.contains(&kind),
        uncached: UNCACHED.contains(&kind),
        status_keeps,
        status_resets: Arc::new(resets),
        part_resets: if kind == ("certificates.k8s.io", "certificatesigningrequests") {
            let set = |fields: &[&str]| Arc::new(FieldSet::of(fields.iter().copied()));
            REQUEST_RESETS.iter().map(|(part, fields)| (*part, set(fields))).collect()
        } else {
            Vec::new()
        },
        any_prefix: ANY_PREFIX.contains(&kind),
        qualified_finalizers: !UNQUALIFIED_FINALIZERS.contains(&group) && kind != ("", "events"),
        returns_deleted: RETURN_DELETED.contains(&kind),
        removed_by_controller: REMOVED_BY_CONTROLLER.contains(&kind),
        dependents: match kind {
            ("", "replicationcontrollers") | ("batch", "jobs") => Dependents::Orphan,
            ("" | "events.k8s.io", "events") => Dependents::Unsupported,
            _ => Dependents::Delete,
        },
        propagation_warning: (kind == ("batch", "jobs")).then_some(JOB_WARNING),
        registry_path: path.into(),
    }
}
