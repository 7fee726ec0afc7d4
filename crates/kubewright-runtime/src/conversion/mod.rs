//! Several versions of one kind, converted on demand.
//!
//! One version is the **hub**: the one that objects are stored in, usually. Every other, a **spoke**, is converted to the hub
//! and from it ([`Convertible`]), and so to any other. [`Hub`] is the wiring, and
//! [`Manager::conversion`](crate::manager::Manager::conversion) takes it: beside its other webhooks the manager then serves
//! `/convert`, on every replica, which the API server asks whenever it is to show or to store another version than it has.
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
//! Where most fields are the same, or just called otherwise, `#[derive(Convert)]` of the crate `kubewright` writes both ways, and a
//! test of them, for the spoke's spec and so for the whole object.
//!
//! # Nothing may get lost
//!
//! Who reads an object in one version and writes it back must not destroy what only the other version can say. What has no
//! place in the other version is [kept](keep) in an annotation of it, and [taken](take) back.
//!
//! # The definition
//!
//! `kube::core::crd::merge_crds` makes one definition of all versions;
//! [`manifests::conversion`](crate::webhook::manifests::conversion) is what its `spec.conversion` should say. When another
//! version is to be stored, a [`Migrator`] writes the objects that are there in it, so that the old one can go.

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
/// Objects are passed whole. `metadata` must be moved over as it is: which object it is and what the API server says of it
/// can't change; of what is different afterwards, labels and annotations count.
pub trait Convertible: Object {
    /// The version that is in the middle.
    type Hub: Object;

    /// This object in the hub's version.
    ///
    /// # Errors
    /// The API server's client gets them to read, and neither reads nor writes the object. They should be rare: what one
    /// version took, the other must be able to show.
    fn convert_to(self) -> Result<Self::Hub, ConversionError>;

    /// The hub's object in this version.
    ///
    /// # Errors
    /// As [`Convertible::convert_to`].
    fn convert_from(hub: Self::Hub) -> Result<Self, ConversionError>;
}

/// Why an object can't be converted. Any error and any text becomes one by `?`.
#[derive(Clone, PartialEq, Eq)]
pub struct ConversionError(String);

impl ConversionError {
    /// With a text that says which field it is, and what it should be.
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
