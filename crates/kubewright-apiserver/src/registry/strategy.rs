//! The rules of a kind.

use std::fmt::Debug;

use kubewright_apimachinery::{
    name,
    status::{Cause, Status},
};
use serde_json::Value;

use crate::auth::requester::Requester;

/// The rules of a kind. The provided methods are right for most custom kinds.
///
/// On create the handlers call: `decode`, schema defaulting, `default`, `prepare_create`, schema validation, `validate`;
/// on update the same with `prepare_update`. They also handle metadata (UID, creation time, generation, managed fields,
/// finalizers) and the isolation of the status: where [`Resource::status`] is set, create and update drop or keep the
/// status, and a status update keeps everything else but the metadata that may change.
pub trait Strategy: Debug + Send + Sync + 'static {
    /// Sets the published defaults of the kind.
    fn default(&self, _object: &mut Value) {}

    /// Sets the fields that the server itself decides at creation.
    fn prepare_create(&self, _object: &mut Value) {}

    /// Sets or restores the fields that an update may not change. `old` and `new` are in stored form.
    fn prepare_update(&self, _old: &Value, _new: &mut Value) {}

    /// Checks rules that a schema can't express. `old` is present on update.
    fn validate(&self, _old: Option<&Value>, _new: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// The rule for `metadata.name`: returns the errors of a name.
    fn name_rule(&self) -> fn(&str) -> Vec<String> {
        name::dns1123_subdomain
    }

    /// The default grace period in seconds, for kinds that are deleted gracefully.
    fn grace_period(&self, _object: &Value) -> Option<i64> {
        None
    }

    /// The reason why an object may not be deleted, if it may not.
    fn forbids_deletion(&self, _object: &Value) -> Option<&'static str> {
        None
    }

    /// Changes an object that is marked for deletion and isn't removed at once.
    fn prepare_delete(&self, _object: &mut Value) {}

    /// Whether an object that is being deleted has to stay for another reason than `metadata.finalizers` and its grace
    /// period. It is removed by the first update after which this is false.
    fn is_held(&self, _object: &Value) -> bool {
        false
    }

    /// Assigns the object to a node, once, at a time in its text form.
    ///
    /// # Errors
    /// The reason why it can't be assigned.
    fn bind(&self, _object: &mut Value, _node: &str, _time: &Value) -> Result<(), String> {
        Err("objects of this kind are not assigned to nodes".into())
    }

    /// The reason why an action such as `log` can't reach the object, if it can't.
    fn unreachable(&self, _object: &Value) -> Option<String> {
        None
    }

    /// Whether objects have a `metadata.generation`, which counts changes other than of metadata and status.
    fn has_generation(&self) -> bool {
        true
    }

    /// Converts from the served to the stored form, for built-in kinds where they differ.
    fn decode(&self, _object: &mut Value) {}

    /// Converts from the stored to the served form, for built-in kinds where they differ.
    fn encode(&self, _object: &mut Value) {}

    /// The `status` of a review, such as a `SelfSubjectReview`, which is answered and not stored. It is returned only if
    /// [`Self::validate`] finds no errors. `None` for all other kinds.
    fn review(&self, _review: &Value, _requester: &Requester<'_>) -> Option<Result<Value, Status>> {
        None
    }

    /// Checks rights to write an object that depend on its content: nobody may grant rights that they don't have. `old` is
    /// present on update.
    fn check_access(&self, _requester: &Requester<'_>, _old: Option<&Value>, _new: &Value) -> Result<(), Status> {
        Ok(())
    }

    /// Whether admission webhooks are called for objects of this kind. They aren't for their own configurations, or a
    /// broken one could never be repaired.
    fn is_admitted(&self) -> bool {
        true
    }

    /// Observes every committed change, in revision order and before any watcher: without an object before it is a creation,
    /// without one after it a removal. For kinds whose objects change how the server works: definitions, roles, webhooks.
    fn committed(&self, _before: Option<&Value>, _after: Option<&Value>) {}
}

/// The strategy of a kind without rules of its own.
#[derive(Debug)]
pub struct Plain;

impl Strategy for Plain {}
