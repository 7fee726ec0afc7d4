//! The API metadata of the built-in resources, from the published OpenAPI document: scope, verbs and subresources.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

/// The metadata of one built-in resource.
#[derive(Deserialize)]
pub(super) struct ApiResource<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    pub(super) namespaced: bool,
    #[serde(borrow)]
    pub(super) verbs: Vec<&'a str>,
    #[serde(borrow)]
    pub(super) subresources: BTreeMap<&'a str, SubresourceKind<'a>>,
}

/// The kind of a subresource's requests and responses, and its verbs.
#[derive(Deserialize)]
pub(super) struct SubresourceKind<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
    #[serde(borrow)]
    pub(super) verbs: Vec<&'a str>,
}

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    resources: Vec<ApiResource<'a>>,
}

/// Returns the metadata of a resource, or `None` if Kubernetes doesn't publish any.
pub(super) fn of(group: &str, version: &str, plural: &str) -> Option<&'static ApiResource<'static>> {
    static FILE: LazyLock<File<'static>> = LazyLock::new(|| {
        // A test checks that the embedded file can be parsed.
        serde_json::from_str(include_str!("../../../data/resources.json")).unwrap_or(File { resources: Vec::new() })
    });
    FILE.resources.iter().find(|found| (found.group, found.version, found.resource) == (group, version, plural))
}
