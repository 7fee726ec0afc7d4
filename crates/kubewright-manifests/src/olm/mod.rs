//! Bundles for the Operator Lifecycle Manager, as operator-sdk makes them.
//!
//! * [`base`] is the part of a ClusterServiceVersion that authors edit, in `config/manifests/bases`;
//! * [`bundle`] completes it with what kustomize renders: Deployments, permissions, definitions, webhooks and samples;
//! * [`add_resources`] adds the kinds that controllers own to it;
//! * [`use_digests`] replaces tags of images by digests, and lists them;
//! * [`catalog`] makes a bundle known to a cluster, and installs it;
//! * [`validate`] checks a bundle, and names the file and field of each mistake;
//! * [`scorecard`] has the format and the built-in tests of operator-sdk's scorecard.
//!
//! The format is that of <https://olm.operatorframework.io/docs/concepts/crds/clusterserviceversion> and
//! <https://olm.operatorframework.io/docs/tasks/creating-operator-bundle>.

mod base;
mod bundle;
pub mod catalog;
mod csv;
mod digests;
mod resources;
pub mod scorecard;
mod validate;

pub use self::{
    base::{BASES, add_owned, base, kustomization},
    bundle::{BundleError, BundleOptions, bundle},
    digests::{tagged_images, use_digests},
    resources::add_resources,
    validate::{Finding, Suite, validate},
};

/// The API version of a ClusterServiceVersion.
const CSV_VERSION: &str = "operators.coreos.com/v1alpha1";
/// Its kind.
const CSV: &str = "ClusterServiceVersion";
/// The prefix of the annotations of a bundle.
const ANNOTATION: &str = "operators.operatorframework.io.bundle.";

/// Returns the text of a field, or an empty one.
fn text<'a>(value: &'a serde_json::Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(serde_json::Value::as_str).unwrap_or_default()
}

/// Returns the items of a list, or none.
fn items<'a>(value: &'a serde_json::Value, pointer: &str) -> &'a [serde_json::Value] {
    value.pointer(pointer).and_then(serde_json::Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
