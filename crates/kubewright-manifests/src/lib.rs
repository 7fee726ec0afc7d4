//! The manifests of an operator, from its [description](kubewright_apimachinery::description): values in, files out.
//!
//! * [`definition`] joins the versions of a kind to a CustomResourceDefinition;
//! * [`conversion`] adds the conversion between versions;
//! * [`size`] measures definitions, and shortens descriptions;
//! * roles follow from what controllers watch, own and record, and from declared rules;
//! * [`yaml`] writes objects in a deterministic form.
//!
//! [`generate`] does all of this. From the manifests that kustomize renders, [`installer`] makes a single file, and
//! [`chart`] a Helm chart, and [`olm`] a bundle for the Operator Lifecycle Manager.
//!
//! Definitions are not validated here: that is left to an API server.

pub mod chart;
pub mod conversion;
pub mod definition;
pub mod installer;
pub mod olm;
mod role;
pub mod size;
pub mod yaml;

use kubewright_apimachinery::description::{Description, Rule};
use serde_json::Value;
use thiserror::Error;

pub use self::{conversion::ConversionError, definition::JoinError, role::RoleError, yaml::YamlError};

/// Options for [`generate`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// The longest description of a field in bytes; 0 omits descriptions, none keeps them.
    pub max_description: Option<usize>,
    /// The name prefix in the kustomization, such as `cronjob-`, which kustomize does not add to names in rules.
    pub prefix: String,
    /// Whether the permissions are limited to the operator's own namespace.
    pub namespaced: bool,
}

/// A file of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct File {
    /// The path in the project, with `/` as separator.
    pub path: String,
    /// The content.
    pub text: String,
}

/// Generated manifests.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Manifests {
    /// The CustomResourceDefinitions, one for each kind.
    pub definitions: Vec<Value>,
    /// All files, sorted by path.
    pub files: Vec<File>,
}

/// A failure to generate manifests.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// A declared rule is invalid.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// The versions of a kind cannot be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The converted versions are not the registered ones.
    #[error(transparent)]
    Conversion(#[from] ConversionError),
    /// An object cannot be written.
    #[error(transparent)]
    Yaml(#[from] YamlError),
}

/// Generates the manifests of an operator: `config/crd/bases/<group>_<plural>.yaml` for each registered kind,
/// `config/rbac/role.yaml` and the roles of the runtime's features, and for webhooks `config/webhook/manifests.yaml`
/// and `role.yaml`.
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
/// Returns an error if the versions of a kind cannot be joined or are not the converted ones, or if a declared rule is
/// invalid.
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

/// Returns the rules of the operator's main role, and of the roles that rules name: those that follow from what
/// controllers watch, own and record, and the declared ones. The runtime's own features have [rules of their
/// own](Description::features).
///
/// # Errors
/// Returns an error for an invalid rule.
pub fn rules(description: &Description) -> Result<Vec<Rule>, RoleError> {
    role::rules(description)
}
