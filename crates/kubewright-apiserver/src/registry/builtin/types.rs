//! The types of the built-in kinds: their names, and their k8s-openapi schemas.
//!
//! Their behavior is defined in [`super::kinds`].

use k8s_openapi::{
    ListableResource, Resource,
    api::{
        admissionregistration::v1 as admissionregistration, apps::v1 as apps, authentication::v1 as authentication,
        authorization::v1 as authorization, autoscaling::v1 as autoscaling_v1, autoscaling::v2 as autoscaling_v2,
        batch::v1 as batch, certificates::v1 as certificates, coordination::v1 as coordination, core::v1 as core,
        discovery::v1 as discovery, events::v1 as events, flowcontrol::v1 as flowcontrol, networking::v1 as networking,
        node::v1 as node, policy::v1 as policy, rbac::v1 as rbac, resource::v1 as resource,
        scheduling::v1 as scheduling, storage::v1 as storage,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions,
    kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration,
    schemars::{JsonSchema, SchemaGenerator},
};

/// One built-in type.
#[derive(Clone, Copy, Debug)]
pub(super) struct BuiltinType {
    /// The API group; empty for the core group.
    pub(super) group: &'static str,
    /// The version.
    pub(super) version: &'static str,
    /// `Pod`
    pub(super) kind: &'static str,
    /// `PodList`; empty for kinds whose objects aren't stored, such as reviews.
    pub(super) list_kind: &'static str,
    /// `pods`
    pub(super) plural: &'static str,
    /// The schema's name in OpenAPI documents, such as `io.k8s.api.core.v1.Pod`.
    pub(super) schema_name: fn() -> String,
    /// Adds the schema and all schemas that it refers to to a generator's definitions.
    pub(super) collect_schema: fn(&mut SchemaGenerator),
}

impl BuiltinType {
    /// Creates the type of a kind whose objects are stored.
    pub(super) const fn of<T: Resource + ListableResource + JsonSchema>() -> Self {
        Self { list_kind: T::LIST_KIND, ..Self::unlisted::<T>() }
    }

    /// Creates the type of a kind whose objects aren't stored and have no lists.
    pub(super) const fn unlisted<T: Resource + JsonSchema>() -> Self {
        Self {
            group: T::GROUP,
            version: T::VERSION,
            kind: T::KIND,
            list_kind: "",
            plural: T::URL_PATH_SEGMENT,
            schema_name: || T::schema_name().into_owned(),
            collect_schema: collect::<T>,
        }
    }
}

/// Adds a type and all types that it refers to to a generator's definitions.
pub(super) fn collect<T: JsonSchema>(generator: &mut SchemaGenerator) {
    generator.subschema_for::<T>();
}

/// Returns whether the server itself serves this group and version.
pub(super) fn is_builtin_version(group: &str, version: &str) -> bool {
    TYPES.iter().any(|builtin| (builtin.group, builtin.version) == (group, version))
}

/// Returns whether the server itself serves this resource, in any version.
pub(super) fn is_builtin_resource(group: &str, plural: &str) -> bool {
    TYPES.iter().any(|builtin| (builtin.group, builtin.plural) == (group, plural))
}

/// All built-in types, in the order of Kubernetes' groups.
pub(super) const TYPES: &[BuiltinType] = &[
    BuiltinType::unlisted::<core::Binding>(),
    BuiltinType::of::<core::ComponentStatus>(),
    BuiltinType::of::<core::ConfigMap>(),
    BuiltinType::of::<core::Endpoints>(),
    BuiltinType::of::<core::Event>(),
    BuiltinType::of::<core::LimitRange>(),
    BuiltinType::of::<core::Namespace>(),
    BuiltinType::of::<core::Node>(),
    BuiltinType::of::<core::PersistentVolumeClaim>(),
    BuiltinType::of::<core::PersistentVolume>(),
    BuiltinType::of::<core::Pod>(),
    BuiltinType::of::<core::PodTemplate>(),
    BuiltinType::of::<core::ReplicationController>(),
    BuiltinType::of::<core::ResourceQuota>(),
    BuiltinType::of::<core::Secret>(),
    BuiltinType::of::<core::ServiceAccount>(),
    BuiltinType::of::<core::Service>(),
    BuiltinType::of::<apps::ControllerRevision>(),
    BuiltinType::of::<apps::DaemonSet>(),
    BuiltinType::of::<apps::Deployment>(),
    BuiltinType::of::<apps::ReplicaSet>(),
    BuiltinType::of::<apps::StatefulSet>(),
    BuiltinType::of::<autoscaling_v1::HorizontalPodAutoscaler>(),
    BuiltinType::of::<autoscaling_v2::HorizontalPodAutoscaler>(),
    BuiltinType::of::<batch::CronJob>(),
    BuiltinType::of::<batch::Job>(),
    BuiltinType::of::<networking::IngressClass>(),
    BuiltinType::of::<networking::Ingress>(),
    BuiltinType::of::<networking::IPAddress>(),
    BuiltinType::of::<networking::NetworkPolicy>(),
    BuiltinType::of::<networking::ServiceCIDR>(),
    BuiltinType::of::<node::RuntimeClass>(),
    BuiltinType::of::<policy::PodDisruptionBudget>(),
    BuiltinType::of::<rbac::ClusterRoleBinding>(),
    BuiltinType::of::<rbac::ClusterRole>(),
    BuiltinType::of::<rbac::RoleBinding>(),
    BuiltinType::of::<rbac::Role>(),
    BuiltinType::of::<scheduling::PriorityClass>(),
    BuiltinType::of::<storage::CSIDriver>(),
    BuiltinType::of::<storage::CSINode>(),
    BuiltinType::of::<storage::CSIStorageCapacity>(),
    BuiltinType::of::<storage::StorageClass>(),
    BuiltinType::of::<storage::VolumeAttachment>(),
    BuiltinType::of::<storage::VolumeAttributesClass>(),
    BuiltinType::of::<events::Event>(),
    BuiltinType::of::<admissionregistration::MutatingAdmissionPolicy>(),
    BuiltinType::of::<admissionregistration::MutatingAdmissionPolicyBinding>(),
    BuiltinType::of::<admissionregistration::MutatingWebhookConfiguration>(),
    BuiltinType::of::<admissionregistration::ValidatingAdmissionPolicy>(),
    BuiltinType::of::<admissionregistration::ValidatingAdmissionPolicyBinding>(),
    BuiltinType::of::<admissionregistration::ValidatingWebhookConfiguration>(),
    BuiltinType::of::<apiextensions::CustomResourceDefinition>(),
    BuiltinType::of::<apiregistration::APIService>(),
    BuiltinType::of::<certificates::CertificateSigningRequest>(),
    BuiltinType::of::<coordination::Lease>(),
    BuiltinType::of::<discovery::EndpointSlice>(),
    BuiltinType::of::<flowcontrol::FlowSchema>(),
    BuiltinType::of::<flowcontrol::PriorityLevelConfiguration>(),
    BuiltinType::of::<resource::DeviceClass>(),
    BuiltinType::of::<resource::ResourceClaim>(),
    BuiltinType::of::<resource::ResourceClaimTemplate>(),
    BuiltinType::of::<resource::ResourceSlice>(),
    BuiltinType::unlisted::<authentication::SelfSubjectReview>(),
    BuiltinType::unlisted::<authentication::TokenReview>(),
    BuiltinType::unlisted::<authorization::LocalSubjectAccessReview>(),
    BuiltinType::unlisted::<authorization::SelfSubjectAccessReview>(),
    BuiltinType::unlisted::<authorization::SelfSubjectRulesReview>(),
    BuiltinType::unlisted::<authorization::SubjectAccessReview>(),
];
