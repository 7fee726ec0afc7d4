//! `kubewright create api`: a kind's types, its controller and its manifests.

mod files;
#[cfg(test)]
mod layout_tests;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    name::{Domain, Group, Kind, NameError, Plural, Version, qualified_group},
    plan::Plan,
    project::{self, Api, Key, Project, ProjectError, Resource},
    template::TemplateError,
};

use super::{
    foreign::{External, Foreign},
    place::Place,
};

/// Why a kind isn't scaffolded. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ApiError {
    /// A name can't be taken.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Neither types nor a controller are wanted.
    #[error("there is nothing to do: answer y, or give --resource or --controller")]
    Nothing,
    /// Types of another crate are named, and types are to be made.
    #[error(
        "--external-api-path and --external-api-domain are for kinds of another crate: use them with --resource=false"
    )]
    ExternalResource,
    /// A domain is given for a kind of another crate, and no path.
    #[error(
        "--external-api-domain without --external-api-path: say where the type is, such as --external-api-path=gateway_api::gateways"
    )]
    NoPath,
    /// It is there.
    #[error("{kind} in version {version} has its types already: edit {path}, or use --force to make the file anew")]
    Exists {
        /// The kind.
        kind: String,
        /// The version.
        version: String,
        /// Where its types are.
        path: String,
    },
    /// The project has kinds of another group.
    #[error(
        "the project has kinds of another group than {0}: use kubewright edit --multigroup first, which keeps groups in folders"
    )]
    OtherGroup(String),
    /// Types or files of another kind are in the way.
    #[error("{kind} would share types or a file with the kind {other} of the same version: choose another name")]
    Clash {
        /// The kind.
        kind: String,
        /// The one that is there.
        other: String,
    },
    /// Another kind of the group is called so.
    #[error("many of {kind} would be called {plural}, as many of {other} are: give another name with --plural")]
    SamePlural {
        /// The kind.
        kind: String,
        /// What both would be called.
        plural: String,
        /// The one that is there.
        other: String,
    },
    /// Another version of the kind is called otherwise, or its objects are elsewhere.
    #[error("{kind} has {there} in version {version}, and a kind has the same in all its versions: {remedy}")]
    Versions {
        /// The kind.
        kind: String,
        /// What the other version has.
        there: String,
        /// The other version.
        version: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A controller is wanted for a kind that nobody defines.
    #[error(
        "the project has no types of {0}, and it is none of Kubernetes' own: \
         use --resource to make them, or --external-api-path to name the crate that has them"
    )]
    Unknown(String),
    /// Another version has the controller.
    #[error(
        "{kind} has its controller already, for version {version}: one looks after all versions, so use --controller=false"
    )]
    HasController {
        /// The kind.
        kind: String,
        /// The version that has it.
        version: String,
    },
    /// A template asks for what it isn't given.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// `PROJECT` can't be written.
    #[error(transparent)]
    Project(#[from] ProjectError),
}

/// What is to be scaffolded.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CreateApi {
    /// Its group, without the domain. None takes the domain itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    /// Its version.
    pub version: Version,
    /// Its kind.
    pub kind: Kind,
    /// What many are called, if not as the kind says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plural: Option<Plural>,
    /// Whether its types are made.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub resource: bool,
    /// Whether its controller is made.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub controller: bool,
    /// Whether its objects are in namespaces.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub namespaced: bool,
    /// Whether what is there is made anew.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub force: bool,
    /// Where its types are, if another crate has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
}

impl CreateApi {
    /// Types in namespaces, and a controller.
    pub fn new(group: Option<Group>, version: Version, kind: Kind) -> Self {
        let (plural, external) = (None, None);
        Self {
            group,
            version,
            kind,
            plural,
            resource: true,
            controller: true,
            namespaced: true,
            force: false,
            external,
        }
    }

    /// Looks whether that may be, and plans all of its files, `PROJECT` being one.
    ///
    /// # Errors
    /// If it may not.
    pub fn plan(&self, project: &Project, plan: &mut Plan<'_>) -> Result<(), ApiError> {
        let mut project = project.clone();
        let resource = self.note(&mut project)?.clone();
        plan.force(self.force);
        files::plan(self, &project, &resource, plan)?;
        plan.replace(project::FILE, project.write()?);
        Ok(())
    }

    /// Looks whether that may be, and notes it in the project.
    ///
    /// # Errors
    /// If it may not; the project is as it was.
    pub fn note<'a>(&self, project: &'a mut Project) -> Result<&'a Resource, ApiError> {
        if !self.resource && !self.controller {
            return Err(ApiError::Nothing);
        }
        match &self.external {
            Some(_) if self.resource => return Err(ApiError::ExternalResource),
            Some(external) if external.path.is_empty() => return Err(ApiError::NoPath),
            _ => {}
        }
        let project_domain = project.domain.clone();
        let own = self.key(&project_domain);
        let has_types = project.resource(&own).is_some_and(|resource| resource.api.is_some());
        if self.resource {
            self.check_types(project, &own, has_types)?;
        }
        let group = self.group.as_ref().map(Group::as_str).unwrap_or_default();
        let foreign = (!self.resource && !has_types)
            .then(|| Foreign::find(project, group, &self.version, &self.kind, self.external.as_ref()))
            .map(|foreign| foreign.ok_or_else(|| ApiError::Unknown(self.kind.to_string())))
            .transpose()?;
        let key = foreign.as_ref().map_or(own, |foreign| Key { domain: &foreign.domain, ..own });
        if let Some(other) = self.controller.then(|| project.other_controller(&key)).flatten() {
            return Err(ApiError::HasController { kind: other.kind.clone(), version: other.version.clone() });
        }
        let (path, plural) = (self.path(project), self.plural(project, &key)?);
        let resource = project.resource_mut(&key);
        resource.plural = plural;
        resource.controller |= self.controller;
        match foreign {
            Some(foreign) => foreign.note(resource),
            None if self.resource => {
                resource.path = path;
                resource.api = Some(Api::new(self.namespaced));
            }
            None => {}
        }
        Ok(resource)
    }

    fn key<'a>(&'a self, domain: &'a str) -> Key<'a> {
        let group = self.group.as_ref().map(Group::as_str).unwrap_or_default();
        Key { group, domain, version: self.version.as_str(), kind: self.kind.as_str() }
    }

    /// Whether types of this kind may be made in the project.
    fn check_types(&self, project: &Project, key: &Key<'_>, has_types: bool) -> Result<(), ApiError> {
        let domain = (!project.domain.is_empty()).then(|| project.domain.parse::<Domain>()).transpose()?;
        qualified_group(self.group.as_ref(), domain.as_ref())?;
        if has_types && !self.force {
            let (kind, version) = (self.kind.to_string(), self.version.to_string());
            return Err(ApiError::Exists { kind, version, path: self.file(project) });
        }
        if !project.multigroup && project.has_other_group(key.group) {
            return Err(ApiError::OtherGroup(key.group.to_owned()));
        }
        if let Some(other) = project.clash(key) {
            return Err(ApiError::Clash { kind: self.kind.to_string(), other: other.kind.clone() });
        }
        let scope = |resource: &&Resource| resource.api.as_ref().is_some_and(|api| api.namespaced != self.namespaced);
        if let Some(other) = project.other_versions(key).find(scope) {
            let there = if self.namespaced { "objects outside of namespaces" } else { "objects in namespaces" };
            let remedy = if self.namespaced { "give --namespaced=false" } else { "leave --namespaced=false out" };
            return Err(self.versions(there.into(), other, remedy));
        }
        Ok(())
    }

    /// What many are called: what is said, what its other versions say, or what the kind says; the same in all versions, and of no other kind.
    fn plural(&self, project: &Project, key: &Key<'_>) -> Result<String, ApiError> {
        let said = self.plural.as_ref().map(ToString::to_string);
        let own = project.resource(key).map(|resource| resource.plural.clone());
        let elsewhere = project.other_versions(key).find(|resource| !resource.plural.is_empty());
        let known = elsewhere.map(|resource| resource.plural.clone()).or(own.filter(|own| !own.is_empty()));
        if let (Some(said), Some(other)) = (&said, elsewhere)
            && *said != other.plural
        {
            return Err(self.versions(format!("the plural {}", other.plural), other, "leave --plural out"));
        }
        let plural = said.or(known).unwrap_or_else(|| self.kind.plural().to_string());
        let is_same = |other: &&Resource| {
            (other.group.as_str(), other.domain.as_str(), &other.plural) == (key.group, key.domain, &plural)
                && other.kind != key.kind
        };
        match project.resources.iter().find(is_same) {
            Some(other) => Err(ApiError::SamePlural { kind: self.kind.to_string(), plural, other: other.kind.clone() }),
            None => Ok(plural),
        }
    }

    fn versions(&self, there: String, other: &Resource, remedy: &'static str) -> ApiError {
        ApiError::Versions { kind: self.kind.to_string(), there, version: other.version.clone(), remedy }
    }

    /// The module of its types, as others say it.
    fn path(&self, project: &Project) -> String {
        format!("{}::{}", project.library(), self.place(project).api().join("::"))
    }

    /// The file of its types.
    fn file(&self, project: &Project) -> String {
        self.place(project).types_file()
    }

    fn place(&self, project: &Project) -> Place {
        let group = self.group.as_ref().map(Group::as_str).unwrap_or_default();
        Place::new(project, group, self.version.as_str(), &self.kind)
    }
}
