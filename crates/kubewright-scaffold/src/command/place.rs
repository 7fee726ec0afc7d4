//! Where the files of a kind are in a project, and what its modules are called there.

use crate::{
    name::{Kind, group_module},
    project::{Project, Resource},
};

/// The places of one kind in one version.
#[derive(Debug)]
pub(super) struct Place {
    /// The module of its group, where groups have modules.
    group: Option<String>,
    /// The group without its domain, as names of files have it.
    short_group: String,
    version: String,
    kind: Kind,
}

impl Place {
    pub(super) fn new(project: &Project, group: &str, version: &str, kind: &Kind) -> Self {
        let module = (project.multigroup && !group.is_empty()).then(|| group_module(group));
        Self { group: module, short_group: group.into(), version: version.into(), kind: kind.clone() }
    }

    /// The parts of the path to the module of its types, below the crate.
    pub(super) fn api(&self) -> Vec<&str> {
        ["api"].into_iter().chain(self.group.as_deref()).chain([self.version.as_str()]).collect()
    }

    /// The parts of the path to the module that says how its versions are converted.
    pub(super) fn conversion(&self) -> Vec<String> {
        let module = format!("{}_conversion", self.kind.lower());
        self.api().into_iter().map(str::to_owned).chain([module]).collect()
    }

    /// The parts of the path to the module of its controller.
    pub(super) fn controller(&self) -> Vec<String> {
        let group = self.group.clone();
        ["controller".to_owned()].into_iter().chain(group).chain([self.kind.module()]).collect()
    }

    /// The parts of the path to the module of its webhooks.
    pub(super) fn webhook(&self) -> Vec<String> {
        let group = self.group.clone();
        ["webhook".to_owned()].into_iter().chain(group).chain([self.version.clone(), self.kind.module()]).collect()
    }

    /// The file of its types.
    pub(super) fn types_file(&self) -> String {
        format!("src/{}/{}.rs", self.api().join("/"), self.kind.module())
    }

    /// What its controller is called in logs, metrics and events, and what the names of its roles begin with: unique in a project.
    pub(super) fn name(&self) -> String {
        match &self.group {
            Some(_) => format!("{}-{}", self.short_group, self.kind.lower()),
            None => self.kind.lower(),
        }
    }

    /// The same as the name of a file.
    pub(super) fn file_name(&self) -> String {
        match &self.group {
            Some(_) => format!("{}_{}", self.short_group, self.kind.lower()),
            None => self.kind.lower(),
        }
    }

    /// The module of its tests.
    pub(super) fn test(&self) -> String {
        match &self.group {
            Some(group) => format!("{group}_{}", self.kind.lower()),
            None => self.kind.module(),
        }
    }

    /// The name of the file with its sample, without `.yaml`.
    pub(super) fn sample(&self) -> String {
        let parts = [self.short_group.as_str(), self.version.as_str(), &self.kind.lower()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_")
    }
}

/// The module of the types of a kind, as the crate itself says it: `PROJECT` names it as others do.
pub(super) fn types_path(project: &Project, resource: &Resource) -> String {
    let library = format!("{}::", project.library());
    match resource.path.strip_prefix(&library) {
        Some(rest) => format!("crate::{rest}"),
        None => resource.path.clone(),
    }
}
