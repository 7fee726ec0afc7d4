//! Finalizers: keys in an object's metadata that delay its deletion until all of them are removed. See
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/>.
//!
//! These functions change an object in memory. The finalizer of the reconciled object is managed by the runtime
//! ([`Reconciler::FINALIZER`](crate::controller::Reconciler::FINALIZER)). For other objects use
//! [`Context::add_finalizer`](crate::context::Context::add_finalizer) and
//! [`remove_finalizer`](crate::context::Context::remove_finalizer).
//!
//! ```
//! # use k8s_openapi::api::core::v1::Pod;
//! # use kubewright_runtime::finalizer;
//! let mut pod = Pod::default();
//! assert!(finalizer::add(&mut pod, "example.com/record"));
//! assert!(!finalizer::add(&mut pod, "example.com/record"), "it is there already");
//! assert!(finalizer::remove(&mut pod, "example.com/record") && !finalizer::contains(&pod, "example.com/record"));
//! ```

use kube::Resource;

/// Returns whether the object has the finalizer.
pub fn contains(object: &impl Resource, name: &str) -> bool {
    object.meta().finalizers.iter().flatten().any(|present| present == name)
}

/// Appends the finalizer unless the object has it. Returns whether the object was changed. The name must be
/// domain-qualified, such as `example.com/record`.
pub fn add(object: &mut impl Resource, name: &str) -> bool {
    let is_new = !contains(object, name);
    if is_new {
        object.meta_mut().finalizers.get_or_insert_default().push(name.into());
    }
    is_new
}

/// Removes the finalizer. Returns whether the object was changed.
pub fn remove(object: &mut impl Resource, name: &str) -> bool {
    let is_there = contains(object, name);
    if let Some(finalizers) = &mut object.meta_mut().finalizers {
        finalizers.retain(|present| present != name);
    }
    is_there
}
