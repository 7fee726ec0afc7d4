//! The requests for which a webhook is called.

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;

use super::Operation;
use crate::object::{KindName, Object};

/// The requests for which a webhook is called: any of the operations on any of the resources. `*` stands for all; see
/// <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-rules>.
///
/// ```
/// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
/// # use kubewright_runtime::webhook::{AdmissionRule, Operation};
/// let all_apps = AdmissionRule::new("apps", "*", "*");
/// let scale = AdmissionRule::of::<Deployment>().subresource("scale").operations([Operation::Update]);
/// let eviction = AdmissionRule::new("", "v1", "pods/eviction").operations([Operation::Create]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdmissionRule {
    /// The API groups; the core group is empty.
    pub groups: Vec<String>,
    /// The versions.
    pub versions: Vec<String>,
    /// The resources in plural, with a subresource behind a slash: `pods`, `pods/exec`, `*/scale`, `*/*`.
    pub resources: Vec<String>,
    /// The operations.
    pub operations: Vec<Operation>,
    /// Whether only namespaced or only cluster-scoped resources count. By default, both do.
    pub namespaced: Option<bool>,
}

impl AdmissionRule {
    /// Creates a rule for creations and updates of a resource.
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        Self {
            groups: vec![group.into()],
            versions: vec![version.into()],
            resources: vec![resource.into()],
            operations: vec![Operation::Create, Operation::Update],
            namespaced: None,
        }
    }

    /// Creates a rule for creations and updates of a kind.
    pub fn of<K: Object>() -> Self {
        Self::kind(&KindName::of::<K>())
    }

    pub(super) fn kind(kind: &KindName) -> Self {
        Self::new(&kind.group, &kind.version, &kind.plural)
    }

    /// Replaces the resources by a subresource of each.
    pub fn subresource(mut self, name: &str) -> Self {
        self.resources.iter_mut().for_each(|resource| *resource = format!("{resource}/{name}"));
        self
    }

    /// Adds another resource of the same groups and versions.
    pub fn and_resource(mut self, resource: &str) -> Self {
        self.resources.push(resource.into());
        self
    }

    /// Sets the operations.
    pub fn operations(self, operations: impl IntoIterator<Item = Operation>) -> Self {
        Self { operations: operations.into_iter().collect(), ..self }
    }

    /// Restricts the rule to namespaced resources, or to cluster-scoped ones.
    pub fn namespaced(self, namespaced: bool) -> Self {
        Self { namespaced: Some(namespaced), ..self }
    }

    /// Returns the rule as it is in a configuration.
    pub(super) fn configured(&self) -> RuleWithOperations {
        let scope = self.namespaced.map(|namespaced| if namespaced { "Namespaced" } else { "Cluster" });
        RuleWithOperations {
            api_groups: Some(self.groups.clone()),
            api_versions: Some(self.versions.clone()),
            operations: Some(self.operations.iter().map(ToString::to_string).collect()),
            resources: Some(self.resources.clone()),
            scope: scope.map(Into::into),
        }
    }
}
