//! `kubewright create api`: adds the types, the controller and the manifests of a kind.

mod files;
mod image;
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

pub use self::image::DeployImage;
pub(crate) use self::image::KEY as DEPLOY_IMAGE;

use super::{
    external_api::{ExternalApi, ExternalType, without_domain},
    kind_paths::KindPaths,
};

/// A failure to add an API. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ApiError {
    /// A name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Neither types nor a controller were requested.
    #[error("nothing to do: answer y, or set --resource or --controller")]
    Nothing,
    /// An external type was given together with `--resource`.
    #[error(
        "--external-api-path and --external-api-domain are for types of another crate: use them with --resource=false"
    )]
    ExternalResource,
    /// The domain of an external type was given without its path.
    #[error(
        "--external-api-domain requires --external-api-path: set the module of the type, such as --external-api-path=gateway_api::gateways"
    )]
    NoPath,
    /// The types already exist.
    #[error("{kind} in version {version} already has types: edit {path}, or use --force to overwrite it")]
    Exists {
        /// The kind.
        kind: String,
        /// The version.
        version: String,
        /// The path of the types.
        path: String,
    },
    /// The project has another group.
    #[error("the project already has another group than {0}: run kubewright edit --multigroup first")]
    OtherGroup(String),
    /// The kind conflicts with another kind.
    #[error("{kind} conflicts with the types or files of the kind {other} in the same version: choose another name")]
    Clash {
        /// The kind.
        kind: String,
        /// The existing kind.
        other: String,
    },
    /// Another kind of the group has the same plural.
    #[error("the plural of {kind} would be {plural}, as that of {other}: choose another one with --plural")]
    SamePlural {
        /// The kind.
        kind: String,
        /// The plural.
        plural: String,
        /// The existing kind.
        other: String,
    },
    /// Another version of the kind has a different plural or scope.
    #[error("{kind} has {there} in version {version}, which must be the same in all versions: {hint}")]
    Versions {
        /// The kind.
        kind: String,
        /// The property of the other version.
        there: String,
        /// The other version.
        version: String,
        /// The hint.
        hint: &'static str,
    },
    /// The kind of the controller is not defined anywhere.
    #[error(
        "the project does not define {0}, and Kubernetes does not either: \
         use --resource to create its types, or --external-api-path for a type of another crate"
    )]
    Unknown(String),
    /// The group of a built-in kind was given with its domain. Contains the name for `--group`.
    #[error("the groups of built-in kinds are named without k8s.io: use --group {0}")]
    WithDomain(&'static str),
    /// Another version already has a controller.
    #[error(
        "{kind} already has a controller, for version {version}, which handles all versions: use --controller=false"
    )]
    HasController {
        /// The kind.
        kind: String,
        /// The version with the controller.
        version: String,
    },
    /// An image was given without `--resource` and `--controller`.
    #[error("--image is for a kind of this project and its controller: omit --resource=false and --controller=false")]
    ImageAlone,
    /// A text of an image cannot be written to code.
    #[error("{0:?} is not an image or a command without quotes and backslashes: edit the generated code instead")]
    Image(String),
    /// A placeholder in a template has no value.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// `PROJECT` cannot be written.
    #[error(transparent)]
    Project(#[from] ProjectError),
}

/// The options of `create api`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CreateApi {
    /// The group, without the domain; `None` for the domain alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    /// The version.
    pub version: Version,
    /// The kind.
    pub kind: Kind,
    /// The plural, if it differs from the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plural: Option<Plural>,
    /// Whether to create the types.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub resource: bool,
    /// Whether to create the controller.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub controller: bool,
    /// Whether the kind is namespaced.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub namespaced: bool,
    /// Whether existing files are overwritten.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub force: bool,
    /// The location of the type, if it is in another crate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalApi>,
    /// The image that the controller runs, with the plugin `deploy-image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<DeployImage>,
}

impl CreateApi {
    /// Creates options for a namespaced kind with a controller.
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
            image: None,
        }
    }

    /// Checks the options, and plans the changes of files, including `PROJECT`.
    ///
    /// # Errors
    /// Returns an error if the options are invalid.
    pub fn plan(&self, project: &Project, plan: &mut Plan<'_>) -> Result<(), ApiError> {
        let mut project = project.clone();
        let resource = self.note(&mut project)?.clone();
        if let Some(image) = &self.image {
            image.note(&mut project, &resource);
        }
        plan.force(self.force);
        files::plan(self, &project, &resource, plan)?;
        plan.replace(project::FILE, project.write()?);
        Ok(())
    }

    /// Checks the options, and adds the resource to the project.
    ///
    /// # Errors
    /// Returns an error if the options are invalid; the project is unchanged.
    pub fn note<'a>(&self, project: &'a mut Project) -> Result<&'a Resource, ApiError> {
        if !self.resource && !self.controller {
            return Err(ApiError::Nothing);
        }
        if let Some(image) = &self.image {
            image.check()?;
            if !self.resource || !self.controller {
                return Err(ApiError::ImageAlone);
            }
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
        let external = (!self.resource && !has_types)
            .then(|| ExternalType::find(project, group, &self.version, &self.kind, self.external.as_ref()))
            .map(|external| {
                let unknown = || ApiError::Unknown(self.kind.to_string());
                external.ok_or_else(|| without_domain(group).map_or_else(unknown, ApiError::WithDomain))
            })
            .transpose()?;
        let key = external.as_ref().map_or(own, |external| Key { domain: &external.domain, ..own });
        if let Some(other) = self.controller.then(|| project.other_controller(&key)).flatten() {
            return Err(ApiError::HasController { kind: other.kind.clone(), version: other.version.clone() });
        }
        let (path, plural) = (self.path(project), self.plural(project, &key)?);
        let resource = project.resource_mut(&key);
        resource.plural = plural;
        resource.controller |= self.controller;
        match external {
            Some(external) => external.note(resource),
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

    /// Checks whether the types can be added to the project.
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
            let there = if self.namespaced { "cluster scope" } else { "namespaced scope" };
            let hint = if self.namespaced { "set --namespaced=false" } else { "omit --namespaced=false" };
            return Err(self.versions(there.into(), other, hint));
        }
        Ok(())
    }

    /// Returns the plural: the given one, that of the other versions, or the default. It is the same in all versions,
    /// and unique within the group.
    fn plural(&self, project: &Project, key: &Key<'_>) -> Result<String, ApiError> {
        let given = self.plural.as_ref().map(ToString::to_string);
        let own = project.resource(key).map(|resource| resource.plural.clone());
        let elsewhere = project.other_versions(key).find(|resource| !resource.plural.is_empty());
        let known = elsewhere.map(|resource| resource.plural.clone()).or(own.filter(|own| !own.is_empty()));
        if let (Some(given), Some(other)) = (&given, elsewhere)
            && *given != other.plural
        {
            return Err(self.versions(format!("the plural {}", other.plural), other, "omit --plural"));
        }
        let plural = given.or(known).unwrap_or_else(|| self.kind.plural().to_string());
        let is_same = |other: &&Resource| {
            (other.group.as_str(), other.domain.as_str(), &other.plural) == (key.group, key.domain, &plural)
                && other.kind != key.kind
        };
        match project.resources.iter().find(is_same) {
            Some(other) => Err(ApiError::SamePlural { kind: self.kind.to_string(), plural, other: other.kind.clone() }),
            None => Ok(plural),
        }
    }

    fn versions(&self, there: String, other: &Resource, hint: &'static str) -> ApiError {
        ApiError::Versions { kind: self.kind.to_string(), there, version: other.version.clone(), hint }
    }

    /// Returns the path of the module of the types, for other crates.
    fn path(&self, project: &Project) -> String {
        format!("{}::{}", project.library(), self.paths(project).api().join("::"))
    }

    /// Returns the path of the file of the types.
    fn file(&self, project: &Project) -> String {
        self.paths(project).types_file()
    }

    fn paths(&self, project: &Project) -> KindPaths {
        let group = self.group.as_ref().map(Group::as_str).unwrap_or_default();
        KindPaths::new(project, group, self.version.as_str(), &self.kind)
    }
}
