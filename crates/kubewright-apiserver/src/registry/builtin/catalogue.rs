//! The list of built-in kinds, in the order of Kubernetes' groups.

use k8s_openapi::{
    api::{
        admissionregistration::v1 as admissionregistration, apps::v1 as apps, batch::v1 as batch,
        coordination::v1 as coordination, core::v1 as core, discovery::v1 as discovery, events::v1 as events,
        networking::v1 as networking, policy::v1 as policy, rbac::v1 as rbac, scheduling::v1 as scheduling,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions,
};

use super::Entry;

/// Every built-in kind.
pub(super) fn all() -> Vec<Entry> {
    vec![
        Entry::of::<core::ConfigMap>().short(&["cm"]),
        Entry::of::<core::Endpoints>().short(&["ep"]),
        Entry::of::<core::Event>().short(&["ev"]),
        Entry::of::<core::LimitRange>().short(&["limits"]),
        Entry::of::<core::Namespace>().short(&["ns"]).select(&["status.phase"]),
        Entry::of::<core::Node>().short(&["no"]).select(&["spec.unschedulable"]),
        Entry::of::<core::PersistentVolumeClaim>().short(&["pvc"]),
        Entry::of::<core::PersistentVolume>().short(&["pv"]),
        Entry::of::<core::Pod>().short(&["po"]).in_all(),
        Entry::of::<core::ResourceQuota>().short(&["quota"]),
        Entry::of::<core::Secret>().select(&["type"]),
        Entry::of::<core::ServiceAccount>().short(&["sa"]),
        Entry::of::<core::Service>().short(&["svc"]).in_all().select(&["spec.clusterIP", "spec.type"]),
        Entry::of::<apps::ControllerRevision>(),
        Entry::of::<apps::DaemonSet>().short(&["ds"]).in_all(),
        Entry::of::<apps::Deployment>().short(&["deploy"]).in_all().scaled_by(".spec.selector"),
        Entry::of::<apps::ReplicaSet>().short(&["rs"]).in_all().scaled_by(".spec.selector"),
        Entry::of::<apps::StatefulSet>().short(&["sts"]).in_all().scaled_by(".spec.selector"),
        Entry::of::<events::Event>().short(&["ev"]).stored_as("", "v1", "Event"),
        Entry::of::<batch::CronJob>().short(&["cj"]).in_all(),
        Entry::of::<batch::Job>().in_all(),
        Entry::of::<networking::Ingress>().short(&["ing"]),
        Entry::of::<networking::NetworkPolicy>().short(&["netpol"]),
        Entry::of::<policy::PodDisruptionBudget>().short(&["pdb"]),
        Entry::of::<rbac::ClusterRoleBinding>(),
        Entry::of::<rbac::ClusterRole>(),
        Entry::of::<rbac::RoleBinding>(),
        Entry::of::<rbac::Role>(),
        Entry::of::<admissionregistration::MutatingWebhookConfiguration>().in_categories(&["api-extensions"]),
        Entry::of::<admissionregistration::ValidatingWebhookConfiguration>().in_categories(&["api-extensions"]),
        Entry::of::<apiextensions::CustomResourceDefinition>()
            .short(&["crd", "crds"])
            .in_categories(&["api-extensions"]),
        Entry::of::<scheduling::PriorityClass>().short(&["pc"]),
        Entry::of::<coordination::Lease>(),
        Entry::of::<discovery::EndpointSlice>(),
    ]
}
