//! The description of an operator: its kinds, and the rules of its roles. It is made once, since it is the same in each run.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Client,
    core::crd::{MergeError, merge_crds},
};
use kubewright_apimachinery::description::Rule;
use kubewright_manifests::RoleError;
use kubewright_runtime::manager::Manager;

use crate::oracle::Own;

/// The description of an operator.
#[derive(Debug)]
pub(crate) struct Described {
    /// The definitions of its kinds, with all versions; the first one is stored. Objects aren't converted, since no webhook is called.
    pub(crate) kinds: Vec<CustomResourceDefinition>,
    /// The groups and plurals of these kinds.
    pub(crate) own: Arc<Own>,
    /// The rules of its generated roles.
    pub(crate) rules: Arc<Vec<Rule>>,
}

impl Described {
    /// Describes an operator. Its manager gets the client, but sends no request.
    pub(crate) fn of(register: fn(Manager) -> Manager, client: Client) -> Result<Self, DescribeError> {
        let described = register(Manager::new(client)).describe();
        let document = described.document().map_err(DescribeError::Document)?;
        let mut rules = kubewright_manifests::rules(&document).map_err(DescribeError::Rights)?;
        rules.extend(document.features.into_values().flatten());
        let kinds = described.kinds.into_iter().filter_map(|kind| merged(kind.versions));
        let kinds = kinds.collect::<Result<Vec<_>, _>>().map_err(DescribeError::Versions)?;
        let own = kinds.iter().map(|kind| (kind.spec.group.clone(), kind.spec.names.plural.clone())).collect();
        Ok(Self { kinds, own: Arc::new(own), rules: Arc::new(rules) })
    }
}

/// An error of describing an operator.
#[derive(Debug)]
pub(crate) enum DescribeError {
    Document(serde_json::Error),
    Rights(RoleError),
    Versions(MergeError),
}

/// Returns the definition of a kind with all its versions, if there are any.
fn merged(versions: Vec<CustomResourceDefinition>) -> Option<Result<CustomResourceDefinition, MergeError>> {
    let stored = versions.first()?.spec.versions.first()?.name.clone();
    Some(merge_crds(versions, &stored))
}
