//! The paths of the files of a kind, and the names of its modules.

use crate::{
    name::{Kind, group_module},
    project::{Project, Resource},
};

/// The paths of one kind in one version.
#[derive(Debug)]
pub(super) struct KindPaths {
    /// The module of the group, in the multigroup layout.
    group: Option<String>,
    /// The group without the domain, for file names.
    short_group: String,
    version: String,
    kind: Kind,
}

impl KindPaths {
    pub(super) fn new(project: &Project, group: &str, version: &str, kind: &Kind) -> Self {
        let module = (project.multigroup && !group.is_empty()).then(|| group_module(group));
        Self { group: module, short_group: group.into(), version: version.into(), kind: kind.clone() }
    }

    /// Returns the path of the module of the types, below the crate.
    pub(super) fn api(&self) -> Vec<&str> {
        ["api"].into_iter().chain(self.group.as_deref()).chain([self.version.as_str()]).collect()
    }

    /// Returns the path of the module of the conversion.
    pub(super) fn conversion(&self) -> Vec<String> {
        let module = format!("{}_conversion", self.kind.lower());
        self.api().into_iter().map(str::to_owned).chain([module]).collect()
    }

    /// Returns the path of the module of the controller.
    pub(super) fn controller(&self) -> Vec<String> {
        let group = self.group.clone();
        ["controller".to_owned()].into_iter().chain(group).chain([self.kind.module()]).collect()
    }

    /// Returns the path of the module of the webhooks.
    pub(super) fn webhook(&self) -> Vec<String> {
        let group = self.group.clone();
        ["webhook".to_owned()].into_iter().chain(group).chain([self.version.clone(), self.kind.module()]).collect()
    }

    /// Returns the path of the file of the types.
    pub(super) fn types_file(&self) -> String {
        format!("src/{}/{}.rs", self.api().join("/"), self.kind.module())
    }

    /// Returns the name of the controller in logs, metrics and events, which is also the prefix of its roles. It is
    /// unique in a project.
    pub(super) fn name(&self) -> String {
        match &self.group {
            Some(_) => format!("{}-{}", self.short_group, self.kind.lower()),
            None => self.kind.lower(),
        }
    }

    /// Returns the name in the form for file names.
    pub(super) fn file_name(&self) -> String {
        match &self.group {
            Some(_) => format!("{}_{}", self.short_group, self.kind.lower()),
            None => self.kind.lower(),
        }
    }

    /// Returns the module of the tests.
    pub(super) fn test(&self) -> String {
        match &self.group {
            Some(group) => format!("{group}_{}", self.kind.lower()),
            None => self.kind.module(),
        }
    }

    /// Returns the file name of the sample, without `.yaml`.
    pub(super) fn sample(&self) -> String {
        let parts = [self.short_group.as_str(), self.version.as_str(), &self.kind.lower()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_")
    }
}

/// Returns the path of the module of the types within the crate. `PROJECT` contains the path for other crates.
pub(super) fn types_path(project: &Project, resource: &Resource) -> String {
    let library = format!("{}::", project.library());
    match resource.path.strip_prefix(&library) {
        Some(rest) => format!("crate::{rest}"),
        None => resource.path.clone(),
    }
}

/// Returns the group of a kind for use in comments. That of kinds without a group is called `core`.
pub(super) fn group_name(resource: &Resource) -> String {
    let group = resource.qualified_group();
    if group.is_empty() { "core".into() } else { group }
}
