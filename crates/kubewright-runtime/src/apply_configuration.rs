//! Apply configurations: types with the fields of another, all of them optional, so that an apply sends and owns only
//! the fields that are set.
//!
//! The derive macro `ApplyConfiguration` of the crate `kubewright` makes them. See
//! <https://kubernetes.io/docs/reference/using-api/server-side-apply/>.

use std::collections::BTreeMap;

/// A type that has an apply configuration. It is implemented by the derive macro, and for collections of such types.
pub trait Applicable {
    /// The type with the same fields, all of them optional.
    type ApplyConfiguration;
}

impl<T: Applicable> Applicable for Vec<T> {
    type ApplyConfiguration = Vec<T::ApplyConfiguration>;
}

impl<T: Applicable> Applicable for Box<T> {
    type ApplyConfiguration = Box<T::ApplyConfiguration>;
}

impl<K, T: Applicable> Applicable for BTreeMap<K, T> {
    type ApplyConfiguration = BTreeMap<K, T::ApplyConfiguration>;
}
