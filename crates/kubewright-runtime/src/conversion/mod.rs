//! Conversion between the versions of a kind.
//!
//! One version is the **hub**, usually the storage version. Every other version, a **spoke**, is converted to the hub
//! and from it ([`Convertible`]), and so to any other. [`Hub`] is passed to
//! [`Manager::conversion`](crate::manager::Manager::conversion). Every replica then serves `/convert` beside its other
//! webhooks, which the API server calls whenever it returns or stores an object in another version.
//!
//! ```
//! use kubewright_runtime::conversion::{ConversionError, Convertible, Hub};
//!
//! mod v1 {
//! #   use kube::CustomResource;
//! #   use schemars::JsonSchema;
//! #   use serde::{Deserialize, Serialize};
//!     #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, CustomResource)]
//!     #[kube(group = "example.com", version = "v1", kind = "Pane", namespaced, storage = false)]
//!     pub struct PaneSpec {
//!         pub size: String,
//!     }
//! }
//!
//! mod v2 {
//! #   use kube::CustomResource;
//! #   use schemars::JsonSchema;
//! #   use serde::{Deserialize, Serialize};
//!     #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, CustomResource)]
//!     #[kube(group = "example.com", version = "v2", kind = "Pane", namespaced)]
//!     pub struct PaneSpec {
//!         pub width: u32,
//!         pub height: u32,
//!     }
//! }
//!
//! impl Convertible for v1::Pane {
//!     type Hub = v2::Pane;
//!
//!     fn convert_to(self) -> Result<v2::Pane, ConversionError> {
//!         let (width, height) = self.spec.size.split_once('x').ok_or("spec.size: use <width>x<height>")?;
//!         let spec = v2::PaneSpec { width: width.parse()?, height: height.parse()? };
//!         Ok(v2::Pane { metadata: self.metadata, spec })
//!     }
//!
//!     fn convert_from(hub: v2::Pane) -> Result<Self, ConversionError> {
//!         let v2::PaneSpec { width, height } = hub.spec;
//!         Ok(Self { metadata: hub.metadata, spec: v1::PaneSpec { size: format!("{width}x{height}") } })
//!     }
//! }
//!
//! let panes = Hub::<v2::Pane>::new().spoke::<v1::Pane>(); // Manager::…conversion(panes)
//! ```
//!
//! If most fields are the same or just renamed, `#[derive(Convert)]` of the crate `kubewright` implements both
//! directions for the spoke's spec and so for the whole object, with a test.
//!
//! # Lossless conversion
//!
//! A client that reads an object in one version and writes it back must not destroy data of the other version. Data
//! that the other version can't represent is [kept](keep) in an annotation, and [taken](take) back.
//!
//! # The CustomResourceDefinition
//!
//! `kube::core::crd::merge_crds` makes one definition of all versions, and
//! [`manifests::conversion`](crate::webhook::manifests::conversion) its `spec.conversion`. After a change of the
//! storage version, a [`Migrator`] writes the existing objects in it, so that the older version can be removed.

mod by_cluster;
mod data;
mod hub;
mod migrate;
mod part;
pub(crate) mod review;
pub mod testing;

use std::{error::Error, fmt};

pub use self::{
    data::{ANNOTATION, keep, take},
    hub::{ConversionDescription, Hub},
    migrate::{Migrated, MigrationError, Migrator},
    part::{Convert, Data},
};
pub(crate) use hub::AnyHub;
#[doc(hidden)]
pub use part::default_of;

use crate::object::Object;

/// A version of a kind that is converted to the kind's [hub](Hub) and from it.
///
/// Whole objects are converted. `metadata` must be moved unchanged, except for labels and annotations: the API server
/// ignores other changes.
pub trait Convertible: Object {
    /// The hub version.
    type Hub: Object;

    /// Converts this object to the hub's version.
    ///
    /// # Errors
    /// The API server's client receives the error, and can neither read nor write the object. Errors should be rare:
    /// what one version accepts, the other must be able to represent.
    fn convert_to(self) -> Result<Self::Hub, ConversionError>;

    /// Converts the hub's object to this version.
    ///
    /// # Errors
    /// As [`Convertible::convert_to`].
    fn convert_from(hub: Self::Hub) -> Result<Self, ConversionError>;
}

/// An object that can't be converted. `?` converts any error or text to it.
#[derive(Clone, PartialEq, Eq)]
pub struct ConversionError(String);

impl ConversionError {
    /// Creates an error. The text should name the field and what is expected.
    pub fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}

impl fmt::Debug for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for ConversionError {
    fn from(error: E) -> Self {
        Self(error.into().to_string())
    }
}
