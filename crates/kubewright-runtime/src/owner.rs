//! Owner references, which determine the controller of an object and its garbage collection.
//!
//! The rules are those of <https://kubernetes.io/docs/concepts/architecture/garbage-collection/>: an owner is in its
//! child's namespace or is cluster-scoped, and at most one owner is the controller. Owners are identified by UID, not
//! by name: an object that is deleted and created again under the same name is another owner.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use thiserror::Error;

/// The error of setting an owner reference. Objects are named as `Kind namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// The owner has no UID, because it was not read from the API server.
    #[error("{owner} has no name or no uid: read it from the API server before it can own {child}")]
    NotStored {
        /// The owner.
        owner: String,
        /// The child.
        child: String,
    },
    /// The owner is in another namespace. The garbage collector looks for it in the child's namespace, and would delete
    /// the child.
    #[error("{owner} can't own {child}: they are in different namespaces")]
    CrossNamespace {
        /// The owner.
        owner: String,
        /// The child.
        child: String,
    },
    /// The child has another controller.
    #[error("{owner} can't own {child}: it is controlled by {controller}")]
    AlreadyControlled {
        /// The owner.
        owner: String,
        /// The child.
        child: String,
        /// The controller of the child, with its UID.
        controller: String,
    },
}

/// Makes `owner` the controller of `child`: the child is garbage collected with it, and changes of the child enqueue
/// the owner in controllers that [own](crate::controller::Controller::owns) the kind.
///
/// The reference has `controller: true` and `blockOwnerDeletion: true`. References to other owners are kept. An
/// existing reference to this owner is updated, so a second call changes nothing.
///
/// # Errors
/// [`OwnerError`] if the owner has no UID, is in another namespace than the child (a child without a namespace counts
/// as cluster-scoped), or the child has another controller. The child is then unchanged.
///
/// ```
/// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
/// # use kube::{Resource, api::ObjectMeta};
/// # use kubewright_runtime::owner::{is_controlled_by, set_controller_reference};
/// # fn named(name: &str, uid: Option<&str>) -> ObjectMeta {
/// #     ObjectMeta { name: Some(name.into()), namespace: Some("shop".into()), uid: uid.map(Into::into), ..ObjectMeta::default() }
/// # }
/// let web = Deployment { metadata: named("web", Some("u1")), ..Deployment::default() };
/// let db = Deployment { metadata: named("db", Some("u2")), ..Deployment::default() };
/// let mut settings = ConfigMap { metadata: named("settings", None), ..ConfigMap::default() };
/// set_controller_reference(&web, &mut settings)?;
/// assert!(is_controlled_by(&settings, "u1"));
/// assert!(set_controller_reference(&db, &mut settings).is_err(), "it has a controller");
/// # Ok::<_, kubewright_runtime::owner::OwnerError>(())
/// ```
pub fn set_controller_reference<O, C>(owner: &O, child: &mut C) -> Result<(), OwnerError>
where
    O: Resource<DynamicType: Default>,
    C: Resource<DynamicType: Default>,
{
    set_controller_reference_with(owner, &O::DynamicType::default(), child, &C::DynamicType::default())
}

/// Adds `owner` to the owners of `child` without making it the controller: the child is garbage collected when all of
/// its owners are deleted.
///
/// The reference has neither `controller` nor `blockOwnerDeletion`. If `owner` is the controller already, it stays the
/// controller. [`Controller::owns_for_every_owner`](crate::controller::Controller::owns_for_every_owner) watches such
/// children.
///
/// # Errors
/// [`OwnerError`] if the owner has no UID, or is in another namespace than the child. The child is then unchanged.
///
/// ```
/// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
/// # use kube::{Resource, api::ObjectMeta};
/// # use kubewright_runtime::owner::{controller_of, has_owner, set_owner_reference};
/// # fn named(name: &str, uid: Option<&str>) -> ObjectMeta {
/// #     ObjectMeta { name: Some(name.into()), namespace: Some("shop".into()), uid: uid.map(Into::into), ..ObjectMeta::default() }
/// # }
/// let web = Deployment { metadata: named("web", Some("u1")), ..Deployment::default() };
/// let db = Deployment { metadata: named("db", Some("u2")), ..Deployment::default() };
/// let mut settings = ConfigMap { metadata: named("settings", None), ..ConfigMap::default() };
/// set_owner_reference(&web, &mut settings)?;
/// set_owner_reference(&db, &mut settings)?;
/// assert!(has_owner(&settings, "u1") && has_owner(&settings, "u2") && controller_of(&settings).is_none());
/// # Ok::<_, kubewright_runtime::owner::OwnerError>(())
/// ```
pub fn set_owner_reference<O, C>(owner: &O, child: &mut C) -> Result<(), OwnerError>
where
    O: Resource<DynamicType: Default>,
    C: Resource<DynamicType: Default>,
{
    set_owner_reference_with(owner, &O::DynamicType::default(), child, &C::DynamicType::default())
}

/// Removes the reference to an owner, whether it is the controller or not (controller-runtime: `RemoveOwnerReference`,
/// `RemoveControllerReference`). Returns whether the child was changed. An update writes it; a merge patch or an apply
/// of this field manager removes it too, but an apply doesn't remove the references that other managers have set.
///
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// # use kube::api::ObjectMeta;
/// # use kubewright_runtime::owner::{remove_owner_reference, set_owner_reference};
/// let metadata = ObjectMeta { name: Some("settings".into()), uid: Some("u1".into()), ..ObjectMeta::default() };
/// let (settings, mut pod) = (ConfigMap { metadata, ..ConfigMap::default() }, Pod::default());
/// set_owner_reference(&settings, &mut pod)?;
/// assert!(remove_owner_reference(&settings, &mut pod) && pod.metadata.owner_references.is_none());
/// assert!(!remove_owner_reference(&settings, &mut pod), "it is gone");
/// # Ok::<_, kubewright_runtime::owner::OwnerError>(())
/// ```
pub fn remove_owner_reference<O: Resource, C: Resource>(owner: &O, child: &mut C) -> bool {
    let Some(uid) = owner.meta().uid.as_deref() else { return false };
    let references = &mut child.meta_mut().owner_references;
    let before = references.as_ref().map_or(0, Vec::len);
    if let Some(references) = references {
        references.retain(|reference| reference.uid != uid);
    }
    let after = references.as_ref().map_or(0, Vec::len);
    references.take_if(|references| references.is_empty());
    after < before
}

/// Sets whether the owner waits for the child when it is deleted in the foreground (controller-runtime:
/// `WithBlockOwnerDeletion`). Returns whether the child has such an owner. Where the admission plugin
/// `OwnerReferencesPermissionEnforcement` is on, as in OpenShift, a blocking reference needs the right to update the
/// owner's `finalizers` subresource.
pub fn set_block_owner_deletion<C: Resource>(child: &mut C, owner_uid: &str, block_owner_deletion: bool) -> bool {
    let references = child.meta_mut().owner_references.iter_mut().flatten();
    let mut found = false;
    for reference in references.filter(|reference| reference.uid == owner_uid) {
        reference.block_owner_deletion = Some(block_owner_deletion);
        found = true;
    }
    found
}

/// [`set_owner_reference`] for kinds that are known only at run time.
///
/// # Errors
/// As [`set_owner_reference`].
pub fn set_owner_reference_with<O: Resource, C: Resource>(
    owner: &O,
    owner_type: &O::DynamicType,
    child: &mut C,
    child_type: &C::DynamicType,
) -> Result<(), OwnerError> {
    let reference = reference_to(owner, owner_type, child, child_type)?;
    let known = child.meta().owner_references.iter().flatten().find(|known| known.uid == reference.uid);
    let (controller, block_owner_deletion) =
        known.map(|known| (known.controller, known.block_owner_deletion)).unwrap_or_default();
    put(child, OwnerReference { controller, block_owner_deletion, ..reference });
    Ok(())
}

/// Adds a reference, or replaces the one to the same owner.
fn put<C: Resource>(child: &mut C, reference: OwnerReference) {
    let references = child.meta_mut().owner_references.get_or_insert_default();
    match references.iter_mut().find(|known| known.uid == reference.uid) {
        Some(known) => *known = reference,
        None => references.push(reference),
    }
}

/// A reference without `controller`.
fn reference_to<O: Resource, C: Resource>(
    owner: &O,
    owner_type: &O::DynamicType,
    child: &C,
    child_type: &C::DynamicType,
) -> Result<OwnerReference, OwnerError> {
    let names = || (name_of(owner, owner_type), name_of(child, child_type));
    let Some(reference) = owner.owner_ref(owner_type) else {
        let (owner, child) = names();
        return Err(OwnerError::NotStored { owner, child });
    };
    let namespace = owner.meta().namespace.as_deref().filter(|namespace| !namespace.is_empty());
    if namespace.is_some() && namespace != child.meta().namespace.as_deref() {
        let (owner, child) = names();
        return Err(OwnerError::CrossNamespace { owner, child });
    }
    Ok(reference)
}

/// [`set_controller_reference`] for kinds that are known only at run time.
///
/// # Errors
/// As [`set_controller_reference`].
pub fn set_controller_reference_with<O: Resource, C: Resource>(
    owner: &O,
    owner_type: &O::DynamicType,
    child: &mut C,
    child_type: &C::DynamicType,
) -> Result<(), OwnerError> {
    let reference = reference_to(owner, owner_type, child, child_type)?;
    let reference = OwnerReference { controller: Some(true), block_owner_deletion: Some(true), ..reference };
    if let Some(OwnerReference { kind, name, uid, .. }) = controller_of(child)
        && *uid != reference.uid
    {
        let controller = format!("{kind} {name} (uid {uid})");
        let (owner, child) = (name_of(owner, owner_type), name_of(child, child_type));
        return Err(OwnerError::AlreadyControlled { owner, child, controller });
    }
    put(child, reference);
    Ok(())
}

/// Returns the reference to the object's controller.
pub fn controller_of<K: Resource>(object: &K) -> Option<&OwnerReference> {
    object.meta().owner_references.iter().flatten().find(|reference| reference.controller == Some(true))
}

/// Returns whether the object with this UID is the controller.
pub fn is_controlled_by<K: Resource>(object: &K, uid: &str) -> bool {
    controller_of(object).is_some_and(|reference| reference.uid == uid)
}

/// Returns whether the object with this UID is an owner, as a controller or not.
pub fn has_owner<K: Resource>(object: &K, uid: &str) -> bool {
    object.meta().owner_references.iter().flatten().any(|reference| reference.uid == uid)
}

fn name_of<K: Resource>(object: &K, dynamic_type: &K::DynamicType) -> String {
    let ObjectMeta { name, generate_name, namespace, .. } = object.meta();
    let name = name.clone().or_else(|| generate_name.as_ref().map(|prefix| format!("{prefix}*"))).unwrap_or_default();
    match namespace {
        Some(namespace) => format!("{} {namespace}/{name}", K::kind(dynamic_type)),
        None => format!("{} {name}", K::kind(dynamic_type)),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};

    use super::*;

    fn meta(namespace: Option<&str>, name: &str, uid: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.into()),
            namespace: namespace.map(Into::into),
            uid: uid.map(Into::into),
            ..ObjectMeta::default()
        }
    }

    fn owner(namespace: &str, uid: &str) -> ConfigMap {
        ConfigMap { metadata: meta(Some(namespace), "boss", Some(uid)), ..ConfigMap::default() }
    }

    fn child(namespace: &str) -> Pod {
        Pod { metadata: meta(Some(namespace), "worker", None), ..Pod::default() }
    }

    #[test]
    fn sets_both_flags_once() {
        let mut pod = child("a");
        set_controller_reference(&owner("a", "1"), &mut pod).unwrap();
        set_controller_reference(&owner("a", "1"), &mut pod).unwrap();
        let expected = OwnerReference {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: "boss".into(),
            uid: "1".into(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        assert_eq!(pod.metadata.owner_references, Some(vec![expected]));
        assert!(is_controlled_by(&pod, "1"));
        assert!(!is_controlled_by(&pod, "2"));
    }

    #[test]
    fn an_owner_that_does_not_control_is_kept_and_promoted() {
        let mut pod = child("a");
        let plain = kube::Resource::owner_ref(&owner("a", "1"), &()).unwrap();
        let other = OwnerReference { uid: "9".into(), ..plain.clone() };
        pod.metadata.owner_references = Some(vec![other.clone(), plain]);
        assert!(controller_of(&pod).is_none());
        set_controller_reference(&owner("a", "1"), &mut pod).unwrap();
        let references = pod.metadata.owner_references.clone().unwrap();
        assert_eq!(references.len(), 2);
        assert_eq!(references[0], other);
        assert_eq!(controller_of(&pod).map(|reference| reference.uid.as_str()), Some("1"));
    }

    #[test]
    fn an_owner_reference_need_not_be_a_controller() {
        let mut pod = child("a");
        set_owner_reference(&owner("a", "1"), &mut pod).unwrap();
        set_controller_reference(&owner("a", "2"), &mut pod).unwrap();
        for uid in ["1", "2"] {
            set_owner_reference(&owner("a", uid), &mut pod).unwrap();
        }
        let references = pod.metadata.owner_references.clone().unwrap();
        assert_eq!(references.iter().map(|reference| reference.controller).collect::<Vec<_>>(), [None, Some(true)]);
        assert!(references[0].block_owner_deletion.is_none() && has_owner(&pod, "1") && !has_owner(&pod, "3"));
        let error = set_owner_reference(&owner("b", "3"), &mut pod).unwrap_err();
        assert!(matches!(error, OwnerError::CrossNamespace { .. }), "{error}");
    }

    #[test]
    fn references_are_removed_and_need_not_block() {
        let mut pod = child("a");
        set_controller_reference(&owner("a", "1"), &mut pod).unwrap();
        set_owner_reference(&owner("a", "2"), &mut pod).unwrap();
        assert!(set_block_owner_deletion(&mut pod, "1", false) && !set_block_owner_deletion(&mut pod, "9", false));
        let blocks = |pod: &Pod| {
            pod.metadata.owner_references.iter().flatten().map(|it| it.block_owner_deletion).collect::<Vec<_>>()
        };
        assert_eq!(blocks(&pod), [Some(false), None]);
        assert!(!remove_owner_reference(&owner("a", "9"), &mut pod));
        assert!(
            remove_owner_reference(&owner("a", "1"), &mut pod) && controller_of(&pod).is_none() && has_owner(&pod, "2")
        );
        assert!(remove_owner_reference(&owner("a", "2"), &mut pod) && pod == child("a"));
    }

    #[test]
    fn refuses_another_namespace() {
        let mut pod = child("b");
        let error = set_controller_reference(&owner("a", "1"), &mut pod).unwrap_err();
        assert_eq!(error.to_string(), "ConfigMap a/boss can't own Pod b/worker: they are in different namespaces");
        assert_eq!(pod, child("b"));
    }

    #[test]
    fn refuses_a_cluster_scoped_child_of_a_namespaced_owner() {
        let mut node = Node { metadata: meta(None, "n", None), ..Node::default() };
        let error = set_controller_reference(&owner("a", "1"), &mut node).unwrap_err();
        assert!(matches!(error, OwnerError::CrossNamespace { .. }), "{error}");
    }

    #[test]
    fn a_cluster_scoped_owner_may_own_anything() {
        let node = Node { metadata: meta(None, "n", Some("7")), ..Node::default() };
        let mut pod = child("b");
        set_controller_reference(&node, &mut pod).unwrap();
        assert!(is_controlled_by(&pod, "7"));
    }

    #[test]
    fn refuses_a_second_controller_even_of_the_same_name() {
        let mut pod = child("a");
        set_controller_reference(&owner("a", "1"), &mut pod).unwrap();
        let before = pod.clone();
        let error = set_controller_reference(&owner("a", "2"), &mut pod).unwrap_err();
        let expected = "ConfigMap a/boss can't own Pod a/worker: it is controlled by ConfigMap boss (uid 1)";
        assert_eq!(error.to_string(), expected);
        assert_eq!(pod, before);
    }

    #[test]
    fn refuses_an_owner_that_was_never_stored() {
        let unsaved = ConfigMap { metadata: meta(Some("a"), "boss", None), ..ConfigMap::default() };
        let error = set_controller_reference(&unsaved, &mut child("a")).unwrap_err();
        assert!(matches!(error, OwnerError::NotStored { .. }), "{error}");
    }
}
