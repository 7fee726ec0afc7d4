//! Catalogs that make a bundle known to the Operator Lifecycle Manager.
//!
//! * [`CatalogBundle`] is a bundle as a file-based catalog lists it, with the image that a cluster pulls;
//! * [`InstallMode`] is the set of namespaces in which an operator works;
//! * [`CatalogServer`] has the objects that serve a catalog and subscribe to it.
//!
//! The format of catalogs is that of <https://olm.operatorframework.io/docs/reference/file-based-catalogs>.

mod bundle;
mod install_mode;
mod objects;

pub use self::{
    bundle::{CatalogBundle, CatalogError},
    install_mode::{InstallMode, InstallModeError, targets_of, unsupported},
    objects::{
        CATALOG_LABEL, CatalogOptions, CatalogServer, GROUP_NAME, INDEX_IMAGE, MANAGED_BY, catalog_name,
        operator_group, subscription,
    },
};
