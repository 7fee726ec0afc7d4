//! The built-in kinds with their strategies, columns and selectable fields, in the order of Kubernetes' groups.

use k8s_openapi::{
    api::{
        admissionregistration::v1 as admissionregistration, apps::v1 as apps, authentication::v1 as authentication,
        authorization::v1 as authorization, autoscaling::v1 as autoscaling_v1, autoscaling::v2 as autoscaling_v2,
        batch::v1 as batch, certificates::v1 as certificates, coordination::v1 as coordination, core::v1 as core,
        discovery::v1 as discovery, events::v1 as events, flowcontrol::v1 as flowcontrol, networking::v1 as networking,
        node::v1 as node, policy::v1 as policy, rbac::v1 as rbac, resource::v1 as resource,
        scheduling::v1 as scheduling, storage::v1 as storage_api,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions,
    kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration,
};
use kubewright_apimachinery::random::Random;

use super::{
    access::{self, BindingStrategy, RoleStrategy, Scope},
    admission_policy::{self, BindingStrategy as PolicyBindingStrategy, PolicyStrategy},
    api_service::{self, ApiServiceStrategy},
    autoscaling::{self, AutoscalerStrategy},
    certificate::{self, SigningRequestStrategy},
    cluster::{self, NamespaceStrategy, NodeStrategy},
    component::{self, ComponentStatusStrategy},
    config::{self, ConfigMapStrategy, SecretStrategy},
    crd::CrdStrategy,
    disruption::DisruptionBudgetStrategy,
    dynamic::{self, DeviceClassStrategy, ResourceClaimStrategy, ResourceClaimTemplateStrategy, ResourceSliceStrategy},
    entry::{Entry, Indexes},
    event::{self, CoreEvents, ModernEvents},
    flow_control::{self, FlowSchemaStrategy, PriorityLevelStrategy},
    job::{self, CronJobStrategy, JobStrategy},
    networking::{
        self as networking_kinds, EndpointSliceStrategy, EndpointsStrategy, IngressClassStrategy, IngressStrategy,
        IpAddressStrategy, NetworkPolicyStrategy, ServiceCidrStrategy,
    },
    other::{self, LeaseStrategy},
    pod::{self, PodBinding, PodStrategy},
    priority::{self, PriorityClassStrategy},
    quota::{LimitRangeStrategy, ResourceQuotaStrategy},
    review::{AccessReview, RulesReview, SelfReview, Subject, TokenReview},
    runtime_class::{self, RuntimeClassStrategy},
    service::{self, ServiceStrategy},
    service_account::ServiceAccountStrategy,
    storage::{
        self, ClaimStrategy, CsiDriverStrategy, CsiNodeStrategy, CsiStorageCapacityStrategy, StorageClassStrategy,
        VolumeAttachmentStrategy, VolumeAttributesClassStrategy, VolumeStrategy,
    },
    webhook::{self, WebhookStrategy},
    workload::{
        self, ControllerRevisionStrategy, DaemonSetStrategy, DeploymentStrategy, PodTemplateStrategy,
        ReplicaSetStrategy, ReplicationControllerStrategy, StatefulSetStrategy,
    },
};
use crate::{
    admission::Phase,
    fields::{flag, text},
};

/// Returns all built-in kinds.
pub(super) fn all(random: &Random, indexes: &Indexes) -> Vec<Entry> {
    let groups = [
        core_group(random, indexes),
        workload_groups(),
        networking_groups(indexes),
        policy_groups(indexes),
        storage_group(indexes),
        machinery_groups(indexes),
        reviews(),
    ];
    groups.into_iter().flatten().collect()
}

fn core_group(random: &Random, indexes: &Indexes) -> Vec<Entry> {
    vec![
        Entry::unlisted::<core::Binding>().strategy(PodBinding),
        Entry::of::<core::ComponentStatus>()
            .short(&["cs"])
            .strategy(ComponentStatusStrategy(indexes.components.clone()))
            .columns(component::columns())
            .deprecated("v1 ComponentStatus is deprecated in v1.19+"),
        Entry::of::<core::ConfigMap>().short(&["cm"]).strategy(ConfigMapStrategy).columns(config::config_map_columns()),
        Entry::of::<core::Endpoints>()
            .short(&["ep"])
            .deprecated("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
            .strategy(EndpointsStrategy)
            .columns(other::endpoints_columns()),
        Entry::of::<core::Event>()
            .short(&["ev"])
            .strategy(CoreEvents)
            .columns(event::columns())
            .select(event::SELECTABLE)
            .select_by("source", event::source),
        Entry::of::<core::LimitRange>()
            .short(&["limits"])
            .strategy(LimitRangeStrategy { ranges: indexes.limits.clone() }),
        Entry::of::<core::Namespace>()
            .short(&["ns"])
            .strategy(NamespaceStrategy)
            .columns(cluster::namespace_columns())
            .select(&["status.phase"]),
        Entry::of::<core::Node>()
            .short(&["no"])
            .strategy(NodeStrategy { topology: indexes.topology.clone(), plugins: indexes.plugins.clone() })
            .columns(cluster::node_columns())
            .select_by("spec.unschedulable", |node| flag(node, "/spec/unschedulable").to_string()),
        Entry::of::<core::PersistentVolumeClaim>()
            .short(&["pvc"])
            .strategy(ClaimStrategy {
                limits: indexes.limits.clone(),
                classes: indexes.storage_classes.clone(),
                plugins: indexes.plugins.clone(),
            })
            .columns(other::claim_columns()),
        Entry::of::<core::PersistentVolume>()
            .short(&["pv"])
            .strategy(VolumeStrategy { references: indexes.references.clone() })
            .columns(other::volume_columns()),
        Entry::of::<core::Pod>()
            .short(&["po"])
            .in_all()
            .strategy(PodStrategy {
                priorities: indexes.priorities.clone(),
                runtimes: indexes.runtimes.clone(),
                limits: indexes.limits.clone(),
                accounts: indexes.accounts.clone(),
                topology: indexes.topology.clone(),
                references: indexes.references.clone(),
                plugins: indexes.plugins.clone(),
            })
            .columns(pod::columns())
            .select(pod::SELECTABLE)
            .select_by("spec.host", |pod| text(pod, "/spec/nodeName").to_owned())
            .select_by("spec.hostNetwork", |pod| flag(pod, "/spec/hostNetwork").to_string())
            // The label is known, but no pod has a value for it.
            .select_by("status.podIPs", |_| String::new()),
        Entry::of::<core::PodTemplate>().strategy(PodTemplateStrategy).columns(workload::pod_template_columns()),
        Entry::of::<core::ReplicationController>()
            .short(&["rc"])
            .in_all()
            .strategy(ReplicationControllerStrategy)
            .columns(workload::replication_controller_columns())
            .scaled_by(".spec.selector")
            .select(&["status.replicas"]),
        Entry::of::<core::ResourceQuota>()
            .short(&["quota"])
            .strategy(ResourceQuotaStrategy)
            .columns(other::quota_columns()),
        Entry::of::<core::Secret>().strategy(SecretStrategy).columns(config::secret_columns()).select(&["type"]),
        Entry::of::<core::ServiceAccount>()
            .short(&["sa"])
            .strategy(ServiceAccountStrategy { accounts: indexes.accounts.clone() })
            .columns(cluster::service_account_columns()),
        Entry::of::<core::Service>()
            .short(&["svc"])
            .in_all()
            .strategy(ServiceStrategy::new(random, indexes.service_range, indexes.service_ranges.clone()))
            .columns(service::columns())
            .select(&["spec.clusterIP", "spec.type"]),
    ]
}

fn workload_groups() -> Vec<Entry> {
    vec![
        Entry::of::<apps::ControllerRevision>()
            .strategy(ControllerRevisionStrategy)
            .columns(workload::controller_revision_columns()),
        Entry::of::<apps::DaemonSet>()
            .short(&["ds"])
            .in_all()
            .strategy(DaemonSetStrategy)
            .columns(workload::daemon_set_columns()),
        Entry::of::<apps::Deployment>()
            .short(&["deploy"])
            .in_all()
            .strategy(DeploymentStrategy)
            .columns(workload::deployment_columns())
            .scaled_by(".spec.selector"),
        Entry::of::<apps::ReplicaSet>()
            .short(&["rs"])
            .in_all()
            .strategy(ReplicaSetStrategy)
            .columns(workload::replica_set_columns())
            .scaled_by(".spec.selector"),
        Entry::of::<apps::StatefulSet>()
            .short(&["sts"])
            .in_all()
            .strategy(StatefulSetStrategy)
            .columns(workload::stateful_set_columns())
            .scaled_by(".spec.selector"),
        Entry::of::<autoscaling_v1::HorizontalPodAutoscaler>()
            .short(&["hpa"])
            .in_all()
            .stored_as("autoscaling", "v2", "HorizontalPodAutoscaler")
            .strategy(AutoscalerStrategy::V1)
            .columns(autoscaling::columns()),
        Entry::of::<autoscaling_v2::HorizontalPodAutoscaler>()
            .short(&["hpa"])
            .in_all()
            .strategy(AutoscalerStrategy::V2)
            .columns(autoscaling::columns()),
        Entry::of::<batch::CronJob>()
            .short(&["cj"])
            .in_all()
            .strategy(CronJobStrategy)
            .columns(job::cron_job_columns()),
        Entry::of::<batch::Job>()
            .in_all()
            .strategy(JobStrategy)
            .columns(job::job_columns())
            .select_by("status.successful", job::successful),
    ]
}

fn networking_groups(indexes: &Indexes) -> Vec<Entry> {
    vec![
        Entry::of::<networking::IngressClass>()
            .strategy(IngressClassStrategy { classes: indexes.ingress_classes.clone() })
            .columns(networking_kinds::ingress_class_columns()),
        Entry::of::<networking::Ingress>()
            .short(&["ing"])
            .strategy(IngressStrategy { classes: indexes.ingress_classes.clone(), plugins: indexes.plugins.clone() })
            .columns(other::ingress_columns()),
        Entry::of::<networking::IPAddress>()
            .short(&["ip"])
            .strategy(IpAddressStrategy)
            .columns(networking_kinds::ip_address_columns()),
        Entry::of::<networking::NetworkPolicy>()
            .short(&["netpol"])
            .strategy(NetworkPolicyStrategy)
            .columns(other::network_policy_columns()),
        Entry::of::<networking::ServiceCIDR>()
            .strategy(ServiceCidrStrategy { ranges: indexes.service_ranges.clone() })
            .columns(networking_kinds::service_cidr_columns()),
        Entry::of::<node::RuntimeClass>()
            .strategy(RuntimeClassStrategy { classes: indexes.runtimes.clone() })
            .columns(runtime_class::columns()),
    ]
}

fn policy_groups(indexes: &Indexes) -> Vec<Entry> {
    let role = |scope| RoleStrategy { scope, authorizer: indexes.authorizer.clone() };
    let binding = |scope| BindingStrategy { scope, authorizer: indexes.authorizer.clone() };
    vec![
        Entry::of::<policy::PodDisruptionBudget>()
            .short(&["pdb"])
            .strategy(DisruptionBudgetStrategy)
            .columns(other::disruption_budget_columns()),
        Entry::of::<rbac::ClusterRoleBinding>().strategy(binding(Scope::Cluster)).columns(access::binding_columns()),
        Entry::of::<rbac::ClusterRole>().strategy(role(Scope::Cluster)),
        Entry::of::<rbac::RoleBinding>().strategy(binding(Scope::Namespace)).columns(access::binding_columns()),
        Entry::of::<rbac::Role>().strategy(role(Scope::Namespace)),
        Entry::of::<scheduling::PriorityClass>()
            .short(&["pc"])
            .strategy(PriorityClassStrategy { classes: indexes.priorities.clone(), plugins: indexes.plugins.clone() })
            .columns(priority::columns()),
    ]
}

fn storage_group(indexes: &Indexes) -> Vec<Entry> {
    vec![
        Entry::of::<storage_api::CSIDriver>().strategy(CsiDriverStrategy).columns(storage::csi_driver_columns()),
        Entry::of::<storage_api::CSINode>().strategy(CsiNodeStrategy).columns(storage::csi_node_columns()),
        Entry::of::<storage_api::CSIStorageCapacity>().strategy(CsiStorageCapacityStrategy),
        Entry::of::<storage_api::StorageClass>()
            .short(&["sc"])
            .strategy(StorageClassStrategy { classes: indexes.storage_classes.clone() })
            .columns(storage::storage_class_columns()),
        Entry::of::<storage_api::VolumeAttachment>()
            .strategy(VolumeAttachmentStrategy)
            .columns(storage::volume_attachment_columns()),
        Entry::of::<storage_api::VolumeAttributesClass>()
            .short(&["vac"])
            .strategy(VolumeAttributesClassStrategy)
            .columns(storage::volume_attributes_class_columns()),
    ]
}

fn machinery_groups(indexes: &Indexes) -> Vec<Entry> {
    let policy = |phase| PolicyStrategy { phase, policies: indexes.policies.clone() };
    let policy_binding = |phase| PolicyBindingStrategy { phase, policies: indexes.policies.clone() };
    let webhook_strategy = |phase| WebhookStrategy { phase, webhooks: indexes.webhooks.clone() };
    vec![
        Entry::of::<events::Event>()
            .short(&["ev"])
            .stored_as("", "v1", "Event")
            .strategy(ModernEvents)
            .columns(event::columns())
            .select_stored(event::SELECTABLE, event::served_name),
        Entry::of::<admissionregistration::MutatingAdmissionPolicy>()
            .in_categories(&["api-extensions"])
            .strategy(policy(Phase::Mutating))
            .columns(admission_policy::mutating_columns()),
        Entry::of::<admissionregistration::MutatingAdmissionPolicyBinding>()
            .in_categories(&["api-extensions"])
            .strategy(policy_binding(Phase::Mutating))
            .columns(admission_policy::binding_columns()),
        Entry::of::<admissionregistration::MutatingWebhookConfiguration>()
            .in_categories(&["api-extensions"])
            .strategy(webhook_strategy(Phase::Mutating))
            .columns(webhook::columns()),
        Entry::of::<admissionregistration::ValidatingAdmissionPolicy>()
            .in_categories(&["api-extensions"])
            .strategy(policy(Phase::Validating))
            .columns(admission_policy::validating_columns()),
        Entry::of::<admissionregistration::ValidatingAdmissionPolicyBinding>()
            .in_categories(&["api-extensions"])
            .strategy(policy_binding(Phase::Validating))
            .columns(admission_policy::binding_columns()),
        Entry::of::<admissionregistration::ValidatingWebhookConfiguration>()
            .in_categories(&["api-extensions"])
            .strategy(webhook_strategy(Phase::Validating))
            .columns(webhook::columns()),
        Entry::of::<apiextensions::CustomResourceDefinition>()
            .short(&["crd", "crds"])
            .in_categories(&["api-extensions"])
            .strategy(CrdStrategy::new(indexes.custom.clone())),
        Entry::of::<apiregistration::APIService>()
            .in_categories(&["api-extensions"])
            .strategy(ApiServiceStrategy { services: indexes.api_services.clone() })
            .columns(api_service::columns()),
        Entry::of::<certificates::CertificateSigningRequest>()
            .short(&["csr"])
            .strategy(SigningRequestStrategy)
            .columns(certificate::columns())
            .select(&["spec.signerName"]),
        Entry::of::<coordination::Lease>().strategy(LeaseStrategy).columns(other::lease_columns()),
        Entry::of::<discovery::EndpointSlice>()
            .strategy(EndpointSliceStrategy)
            .columns(other::endpoint_slice_columns()),
        Entry::of::<flowcontrol::FlowSchema>()
            .strategy(FlowSchemaStrategy { flow_control: indexes.flow_control.clone() })
            .columns(flow_control::flow_schema_columns()),
        Entry::of::<flowcontrol::PriorityLevelConfiguration>()
            .strategy(PriorityLevelStrategy { flow_control: indexes.flow_control.clone() })
            .columns(flow_control::priority_level_columns()),
        Entry::of::<resource::DeviceClass>().strategy(DeviceClassStrategy).columns(dynamic::named_columns()),
        Entry::of::<resource::ResourceClaim>().strategy(ResourceClaimStrategy).columns(dynamic::claim_columns()),
        Entry::of::<resource::ResourceClaimTemplate>()
            .strategy(ResourceClaimTemplateStrategy)
            .columns(dynamic::named_columns()),
        Entry::of::<resource::ResourceSlice>()
            .strategy(ResourceSliceStrategy)
            .columns(dynamic::slice_columns())
            .select(&["spec.nodeName", "spec.driver"]),
    ]
}

fn reviews() -> Vec<Entry> {
    vec![
        Entry::unlisted::<authentication::SelfSubjectReview>().strategy(SelfReview),
        Entry::unlisted::<authentication::TokenReview>().strategy(TokenReview),
        Entry::unlisted::<authorization::LocalSubjectAccessReview>().strategy(AccessReview(Subject::Local)),
        Entry::unlisted::<authorization::SelfSubjectAccessReview>().strategy(AccessReview(Subject::Requester)),
        Entry::unlisted::<authorization::SelfSubjectRulesReview>().strategy(RulesReview),
        Entry::unlisted::<authorization::SubjectAccessReview>().strategy(AccessReview(Subject::Named)),
    ]
}
