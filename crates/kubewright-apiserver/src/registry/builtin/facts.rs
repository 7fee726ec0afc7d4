//! What the published OpenAPI document says of each built-in resource: its scope, verbs and subresources.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

/// One built-in resource.
#[derive(Deserialize)]
pub(super) struct Facts<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    pub(super) namespaced: bool,
    #[serde(borrow)]
    pub(super) verbs: Vec<&'a str>,
    #[serde(borrow)]
    pub(super) subresources: BTreeMap<&'a str, Exchange<'a>>,
}

/// What a subresource takes and answers.
#[derive(Deserialize)]
pub(super) struct Exchange<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
    #[serde(borrow)]
    pub(super) verbs: Vec<&'a str>,
}

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    resources: Vec<Facts<'a>>,
}

/// The facts of a resource; `None` for one that Kubernetes doesn't publish.
pub(super) fn of(group: &str, version: &str, plural: &str) -> Option<&'static Facts<'static>> {
    static FILE: LazyLock<File<'static>> = LazyLock::new(|| {
        // The file is part of the program, and a test reads it.
        serde_json::from_str(include_str!("../../../data/resources.json")).unwrap_or(File { resources: Vec::new() })
    });
    FILE.resources.iter().find(|facts| (facts.group, facts.version, facts.resource) == (group, version, plural))
}
