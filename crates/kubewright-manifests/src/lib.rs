//! The manifests of an operator, made from what it [says of itself](kubewright_apimachinery::description): values in, files out.
//!
//! * [`definition`] makes one CustomResourceDefinition of a kind's versions;
//! * [`conversion`] has it say how they are converted;
//! * [`size`] says what is large in one, and makes it smaller;
//! * roles are made of what controllers watch, own and record, and of what they declare;
//! * [`yaml`] writes objects, the same ones always in the same way.
//!
//! [`generate`] does it all. Of what kustomize renders of a project, [`installer`] makes one file to install by, and [`chart`] a Helm chart.
//!
//! What is made is right as far as the description goes; whether an API server takes the definitions is
//! for whoever writes them to ask one.

pub mod chart;
pub mod conversion;
pub mod definition;
pub mod installer;
mod role;
pub mod size;
pub mod yaml;

use kubewright_apimachinery::description::Description;
use serde_json::Value;
use thiserror::Error;

pub use self::{conversion::ConversionError, definition::JoinError, role::RoleError, yaml::YamlError};

/// What can be asked for.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// How many bytes descriptions of fields may have; 0 leaves them out, none keeps them whole.
    pub max_description: Option<usize>,
    /// What kustomize puts before the names of the operator's objects, such as `cronjob-`: it doesn't do so in the rules of roles.
    pub prefix: String,
    /// Whether the operator has rights in its own namespace only, where it asks for them in all.
    pub namespaced: bool,
}

/// A file of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct File {
    /// Its path below the project's folder, with `/` between.
    pub path: String,
    /// What it holds.
    pub text: String,
}

/// What was made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Manifests {
    /// The definitions, one for each kind.
    pub definitions: Vec<Value>,
    /// All files, in the order of their paths.
    pub files: Vec<File>,
}

/// Why no manifests can be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The rights of the operator make no role.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// The versions of a kind don't fit together.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Other versions are converted than there are.
    #[error(transparent)]
    Conversion(#[from] ConversionError),
    /// An object can't be written.
    #[error(transparent)]
    Yaml(#[from] YamlError),
}

/// Makes the manifests of an operator: `config/crd/bases/<group>_<plural>.yaml` for each kind that it brings, `config/rbac/role.yaml` and
/// the roles of the runtime's features beside it, and if there are webhooks `config/webhook/manifests.yaml` and `role.yaml`.
///
/// ```
/// use kubewright_apimachinery::description::Description;
/// use kubewright_manifests::{Options, generate};
///
/// let described = Description::read(r#"{"version": 1, "kinds": [{"versions": [{
///     "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
///     "metadata": {"name": "cows.my.domain"},
///     "spec": {
///         "group": "my.domain", "scope": "Namespaced", "names": {"kind": "Cow", "plural": "cows"},
///         "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]
///     }
/// }]}]}"#)?;
/// let made = generate(&described, &Options::default())?;
/// assert_eq!(made.files[0].path, "config/crd/bases/my.domain_cows.yaml");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the versions of a kind don't fit together or are not those that are converted, or a declaration of rights can't be.
pub fn generate(description: &Description, options: &Options) -> Result<Manifests, ManifestError> {
    let mut definitions = description.kinds.iter().map(definition::join).collect::<Result<Vec<_>, _>>()?;
    conversion::add(&mut definitions, &description.conversions)?;
    let mut files = Vec::new();
    for definition in &mut definitions {
        if let Some(max) = options.max_description {
            size::shorten(definition, max);
        }
        files.push(File { path: definition::path(definition), text: yaml::documents([&*definition])? });
    }
    if !description.webhook_configurations.is_empty() {
        let text = yaml::documents(&description.webhook_configurations)?;
        files.push(File { path: "config/webhook/manifests.yaml".into(), text });
    }
    for roles in role::roles(description, &options.prefix, options.namespaced)? {
        let text = format!("{}{}", roles.comment, yaml::documents(&roles.objects)?);
        files.push(File { path: roles.path.into(), text });
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(Manifests { definitions, files })
}
