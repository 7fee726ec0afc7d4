//! The flow schema and priority level of each request, which responses name by UID.
//!
//! Clients recognize by these headers that priority and fairness is enabled, and then don't limit themselves. Requests are
//! classified as by the default flow schemas
//! (<https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#defaults>), but never queued or rejected.

use http::{HeaderMap, HeaderName, HeaderValue};
use kubewright_apimachinery::random::Random;

use crate::{
    auth::{Attributes, UserInfo},
    meta,
    storage::{Key, Store},
};

const SCHEMA_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
const SCHEMAS: &str = "flowcontrol.apiserver.k8s.io/flowschemas";
const LEVELS: &str = "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations";

/// A default flow schema and its priority level, by order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlowSchema {
    Exempt,
    Probes,
    LeaderElection,
    NodeHigh,
    Nodes,
    ControllerManager,
    Scheduler,
    KubeSystemServiceAccounts,
    ServiceAccounts,
    GlobalDefault,
}

/// The names of all default flow schemas and their priority levels, in the order of [`FlowSchema`].
const NAMES: [(&str, &str); 10] = [
    ("exempt", "exempt"),
    ("probes", "exempt"),
    ("system-leader-election", "leader-election"),
    ("system-node-high", "node-high"),
    ("system-nodes", "system"),
    ("kube-controller-manager", "workload-high"),
    ("kube-scheduler", "workload-high"),
    ("kube-system-service-accounts", "workload-high"),
    ("service-accounts", "workload-low"),
    ("global-default", "global-default"),
];

/// The UIDs of flow schemas and priority levels.
#[derive(Debug, Default)]
pub(crate) struct FlowControl {
    /// The UIDs of the schema and of its level, in the order of [`NAMES`].
    uids: Vec<(HeaderValue, HeaderValue)>,
}

/// The classification of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow(FlowSchema);

impl Flow {
    /// Classifies a request. The attributes may be absent for users with unrestricted access.
    pub(crate) fn of(user: &UserInfo, attributes: Option<&Attributes>) -> Self {
        match attributes.filter(|_| !user.is_unrestricted()) {
            Some(attributes) => Self(schema(user, attributes)),
            None => Self(FlowSchema::Exempt),
        }
    }
}

fn schema(user: &UserInfo, request: &Attributes) -> FlowSchema {
    let in_group = |name: &str| user.groups.iter().any(|group| group == name);
    let of_kube_system = user.name.starts_with("system:serviceaccount:kube-system:");
    let is_lease = request.group == "coordination.k8s.io" && request.resource == "leases";
    let is_component = |name: &str| user.name == name;
    let manager = is_component("system:kube-controller-manager");
    let scheduler = is_component("system:kube-scheduler");
    if request.verb == "get" && matches!(request.path.as_str(), "/healthz" | "/readyz" | "/livez") {
        return FlowSchema::Probes;
    }
    let elects = is_lease && request.subresource.is_empty() && matches!(&*request.verb, "get" | "create" | "update");
    if elects && (manager || scheduler || of_kube_system) {
        return FlowSchema::LeaderElection;
    }
    if in_group("system:nodes") {
        let is_node = request.group.is_empty()
            && request.resource == "nodes"
            && matches!(request.subresource.as_str(), "" | "status");
        return if is_node || is_lease { FlowSchema::NodeHigh } else { FlowSchema::Nodes };
    }
    if manager {
        FlowSchema::ControllerManager
    } else if scheduler {
        FlowSchema::Scheduler
    } else if of_kube_system {
        FlowSchema::KubeSystemServiceAccounts
    } else if in_group("system:serviceaccounts") {
        FlowSchema::ServiceAccounts
    } else {
        FlowSchema::GlobalDefault
    }
}

impl FlowControl {
    /// Returns the UIDs of the objects in the store, and random ones for those that don't exist.
    pub(crate) fn new(store: &Store, random: &Random) -> Self {
        let mut levels: Vec<(&str, HeaderValue)> = Vec::new();
        let uid = |storage: &str, name: &str| {
            let stored = store.get(storage, &Key::new("", name)).map(|stored| stored.value());
            let stored = stored.as_deref().map(|object| meta::text(object, "uid")).filter(|uid| !uid.is_empty());
            let text = stored.map_or_else(|| random.uuid(), str::to_owned);
            HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
        };
        let uids = NAMES.map(|(schema, level)| {
            let known = levels.iter().find(|(name, _)| *name == level).map(|(_, uid)| uid.clone());
            let level_uid = known.unwrap_or_else(|| {
                let uid = uid(LEVELS, level);
                levels.push((level, uid.clone()));
                uid
            });
            (uid(SCHEMAS, schema), level_uid)
        });
        Self { uids: uids.into() }
    }

    /// Adds the headers of a classified request.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap, Flow(schema): Flow) {
        if let Some((schema, level)) = self.uids.get(schema as usize) {
            headers.insert(SCHEMA_HEADER, schema.clone());
            headers.insert(LEVEL_HEADER, level.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Limits;

    fn check(user: UserInfo, request: Attributes, expect: &str) {
        let Flow(schema) = Flow::of(&user, Some(&request));
        assert_eq!(NAMES[schema as usize].0, expect, "{user:?} {request:?}");
    }

    #[test]
    fn requests_are_classified_by_user_and_object() {
        let get = |group: &str, resource: &str| Attributes {
            verb: "get".into(),
            group: group.into(),
            resource: resource.into(),
            ..Attributes::default()
        };
        let path = |path: &str| Attributes { verb: "get".into(), path: path.into(), ..Attributes::default() };
        let lease = || get("coordination.k8s.io", "leases");
        let node = || UserInfo::new("system:node:a", ["system:nodes"]);
        let manager = || UserInfo::new("system:kube-controller-manager", ["system:authenticated"]);
        check(UserInfo::admin(), get("", "pods"), "exempt");
        check(UserInfo::anonymous(), path("/livez"), "probes");
        check(UserInfo::anonymous(), path("/livez/ping"), "global-default");
        check(manager(), lease(), "system-leader-election");
        check(manager(), get("", "pods"), "kube-controller-manager");
        check(node(), lease(), "system-node-high");
        check(node(), get("", "nodes"), "system-node-high");
        check(node(), get("", "pods"), "system-nodes");
        check(UserInfo::service_account("kube-system", "a"), lease(), "system-leader-election");
        check(UserInfo::service_account("kube-system", "a"), get("", "pods"), "kube-system-service-accounts");
        check(UserInfo::service_account("default", "a"), get("", "pods"), "service-accounts");
        check(UserInfo::new("jane", ["dev"]), get("", "pods"), "global-default");
        assert_eq!(Flow::of(&UserInfo::admin(), None), Flow(FlowSchema::Exempt));
    }

    #[test]
    fn schemas_of_one_level_share_its_uid() {
        let control = FlowControl::new(&Store::new(Limits::default()), &Random::seeded(1));
        let headers = |schema| {
            let mut headers = HeaderMap::new();
            control.add_headers(&mut headers, Flow(schema));
            [SCHEMA_HEADER, LEVEL_HEADER].map(|name| headers[name].to_str().unwrap().to_owned())
        };
        let (exempt, probes) = (headers(FlowSchema::Exempt), headers(FlowSchema::Probes));
        assert_eq!(exempt[1], probes[1]);
        assert!(exempt[0] != probes[0] && exempt[0] != exempt[1] && exempt[0].len() == 36);
        assert_ne!(headers(FlowSchema::GlobalDefault)[1], exempt[1]);
    }
}
