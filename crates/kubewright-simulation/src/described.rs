//! The description of an operator: its kinds, and the rules of its roles.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Client,
    api::DynamicObject,
    core::crd::{MergeError, merge_crds},
};
use kubewright_apimachinery::description::{Conversion, Rule};
use kubewright_manifests::{ConversionError, RoleError};
use kubewright_runtime::manager::Manager;

use crate::oracle::Own;

/// The description of an operator.
#[derive(Debug)]
pub(crate) struct Described {
    /// The definitions of its kinds, with all versions; the first one is stored.
    pub(crate) kinds: Vec<CustomResourceDefinition>,
    /// The groups and plurals of these kinds.
    pub(crate) own: Arc<Own>,
    /// The configurations of its webhooks.
    pub(crate) webhooks: Vec<DynamicObject>,
    /// Whether it converts objects between versions.
    pub(crate) has_conversions: bool,
    /// The rules of its generated roles.
    pub(crate) rules: Arc<Vec<Rule>>,
}

impl Described {
    /// Describes an operator. Its manager gets the client, but sends no request. `has_webhooks` says whether its
    /// webhooks and conversions are called.
    pub(crate) fn of(
        register: fn(Manager) -> Manager,
        client: Client,
        has_webhooks: bool,
    ) -> Result<Self, DescribeError> {
        let described = register(Manager::new(client)).describe();
        let document = described.document().map_err(DescribeError::Document)?;
        let mut rules = kubewright_manifests::rules(&document).map_err(DescribeError::Rights)?;
        rules.extend(document.features.into_values().flatten());
        let kinds = described.kinds.into_iter().filter_map(|kind| merged(kind.versions));
        let mut kinds = kinds.collect::<Result<Vec<_>, _>>().map_err(DescribeError::Versions)?;
        let (mut configurations, mut conversions) = (document.webhook_configurations, document.conversions);
        if !has_webhooks {
            configurations.clear();
            conversions.clear();
        }
        let has_conversions = !conversions.is_empty();
        if has_conversions {
            kinds = converted(kinds, &conversions)?;
        }
        let webhooks = configurations.into_iter().map(serde_json::from_value).collect::<Result<_, _>>();
        let webhooks = webhooks.map_err(DescribeError::Document)?;
        let own = kinds.iter().map(|kind| (kind.spec.group.clone(), kind.spec.names.plural.clone())).collect();
        Ok(Self { kinds, own: Arc::new(own), webhooks, has_conversions, rules: Arc::new(rules) })
    }
}

/// Returns the groups and plurals of the kinds whose status the built-in controllers write.
pub(crate) fn of_controllers() -> Own {
    let kinds = [
        ("", "persistentvolumeclaims"),
        ("", "replicationcontrollers"),
        ("", "resourcequotas"),
        ("apps", "daemonsets"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("autoscaling", "horizontalpodautoscalers"),
        ("batch", "cronjobs"),
        ("batch", "jobs"),
        ("policy", "poddisruptionbudgets"),
    ];
    kinds.map(|(group, plural)| (group.to_owned(), plural.to_owned())).into()
}

/// An error of describing an operator.
#[derive(Debug)]
pub(crate) enum DescribeError {
    Document(serde_json::Error),
    Rights(RoleError),
    Versions(MergeError),
    Conversions(ConversionError),
}

/// Adds the conversion between versions to the definitions.
fn converted(
    kinds: Vec<CustomResourceDefinition>,
    conversions: &[Conversion],
) -> Result<Vec<CustomResourceDefinition>, DescribeError> {
    let definitions = kinds.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>();
    let mut definitions = definitions.map_err(DescribeError::Document)?;
    kubewright_manifests::conversion::add(&mut definitions, conversions).map_err(DescribeError::Conversions)?;
    let kinds = definitions.into_iter().map(serde_json::from_value).collect::<Result<_, _>>();
    kinds.map_err(DescribeError::Document)
}

/// Returns the definition of a kind with all its versions, if there are any.
fn merged(versions: Vec<CustomResourceDefinition>) -> Option<Result<CustomResourceDefinition, MergeError>> {
    let stored = versions.first()?.spec.versions.first()?.name.clone();
    Some(merge_crds(versions, &stored))
}
