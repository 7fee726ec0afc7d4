//! The kind-specific rules of resources.

use std::fmt::Debug;

use jiff::Timestamp;
use kubewright_apimachinery::{
    name,
    status::{Cause, Status},
};
use serde_json::Value;

use super::AtKubelet;
use crate::auth::{UserInfo, requester::Requester};

/// The rules of a kind. The default methods are suitable for most custom kinds.
///
/// On create, the handlers call `decode`, schema defaulting, `default`, `admit`, `prepare_create`, schema validation
/// and `validate`, in this order. Mutating policies and webhooks follow `admit`, which is called again if they changed
/// the object. On update, they call `prepare_update` instead of `prepare_create`. The handlers also manage metadata
/// (UID, creation time, generation, managed fields, finalizers) and isolate the status: if `Resource::status` is set,
/// create drops and update preserves the status, and a status update preserves everything except the status and the
/// mutable metadata.
pub trait Strategy: Debug + Send + Sync + 'static {
    /// Sets the published defaults of the kind.
    fn default(&self, _object: &mut Value) {}

    /// Sets the published defaults that are the current time.
    fn default_times(&self, _object: &mut Value, _now: Timestamp) {}

    /// Returns whether a new object needs another one that a controller is about to create, such as a pod the default
    /// service account of a new namespace. Admission then waits a little.
    fn is_early(&self, _object: &Value) -> bool {
        false
    }

    /// Completes an object by what other objects of the cluster determine, such as the priority of a pod, before
    /// policies and webhooks see it. `old` is set on update. Called again with its own result, it changes nothing.
    ///
    /// Returns the reason why the object is forbidden, as an admission plugin of Kubernetes would.
    fn admit(&self, _old: Option<&Value>, _object: &mut Value) -> Result<(), String> {
        Ok(())
    }

    /// Completes what is sent to a subresource, as [`Self::admit`] does an object: a `Binding`, or the object of which
    /// the subresource changes a part. `old` is set for the latter. Called again with its own result, it changes
    /// nothing.
    fn admit_subresource(&self, _subresource: &str, _old: Option<&Value>, _body: &mut Value) {}

    /// Records the user that creates the object, for kinds whose objects name it.
    fn attribute(&self, _object: &mut Value, _user: &UserInfo) {}

    /// Returns whether a new object keeps the status that the client sends, although the kind has a status subresource.
    fn keeps_new_status(&self) -> bool {
        false
    }

    /// Sets the fields that the server determines at creation.
    fn prepare_create(&self, _object: &mut Value) {}

    /// Replaces what [`prepare_create`](Self::prepare_create) has allocated by what a dry run shows. `asked` is the
    /// object before that.
    fn prepare_dry_run(&self, _asked: &Value, _new: &mut Value) {}

    /// Sets or restores fields that an update must not change. `old` and `new` are in stored form.
    fn prepare_update(&self, _old: &Value, _new: &mut Value) {}

    /// Sets or restores fields in an update of the status, or of the `approval` of a certificate signing request, which
    /// is a part of it. `now` is the current time in text form.
    fn prepare_status(&self, _subresource: &str, _old: &Value, _new: &mut Value, _now: &Value) {}

    /// Returns whether a controller in Kubernetes' API server writes to the status of objects of this kind.
    fn settles(&self) -> bool {
        false
    }

    /// Returns the names of the objects of the cluster whose status may change with that of others.
    fn unsettled(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the group and the plural name of the kind of [`Self::unsettled`], if it is another one.
    fn unsettled_kind(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    /// Returns what a controller in Kubernetes' API server writes to the status of a stored object after each write to
    /// it. It is written before the request is answered. Called again with the result, it changes nothing.
    fn settled(&self, _object: &Value) -> Option<Settled> {
        None
    }

    /// Checks rules that a schema can't express. `old` is set on update.
    fn validate(&self, _old: Option<&Value>, _new: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// Checks again, in the moment of the commit, what depends on other objects: numbers that are allocated once.
    fn validate_commit(&self, _old: Option<&Value>, _new: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// Checks an update of the status.
    fn validate_status(&self, old: &Value, new: &Value) -> Vec<Cause> {
        self.validate(Some(old), new)
    }

    /// Restores what an update of a part of the object, such as `resize` of a pod, must not change in `spec`. The
    /// metadata and the status are restored already. `old` and `new` are in stored form.
    fn prepare_part(&self, _subresource: &str, _old: &Value, _new: &mut Value) {}

    /// Checks an update of a part of the object.
    fn validate_part(&self, _subresource: &str, old: &Value, new: &Value) -> Vec<Cause> {
        self.validate(Some(old), new)
    }

    /// Returns whether [`Self::validate`] checks everything that the schema requires. If so, the schema only determines
    /// the types of fields, as in Kubernetes.
    fn has_own_validation(&self) -> bool {
        false
    }

    /// Returns warnings about a valid object. `old` is set on update.
    fn warnings(&self, _old: Option<&Value>, _new: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Returns warnings about an object that is about to be created, before [`Self::prepare_create`] changes it.
    fn warnings_of_new(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Returns whether an object without a name gets a random one.
    fn names_itself(&self) -> bool {
        false
    }

    /// Returns the rule for `metadata.name`, which maps a name to its errors.
    fn name_rule(&self) -> fn(&str) -> Vec<String> {
        name::dns1123_subdomain
    }

    /// Returns the errors of a new object's name or of the prefix of a generated one, which may depend on the object.
    fn check_name(&self, _object: &Value, name: &str) -> Vec<String> {
        self.name_rule()(name)
    }

    /// Returns the grace period in seconds of a deletion, for kinds that are deleted gracefully. `requested` is the one
    /// that the request asks for.
    fn grace_period(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// Returns the reason why an object must not be deleted, if there is one.
    fn forbids_deletion(&self, _object: &Value) -> Option<&'static str> {
        None
    }

    /// Modifies an object that is marked for deletion but not removed immediately.
    fn prepare_delete(&self, _object: &mut Value) {}

    /// Returns whether an object that is being deleted must be kept for a reason other than `metadata.finalizers` and
    /// its grace period. The first update after which this is false removes it.
    fn is_held(&self, _object: &Value) -> bool {
        false
    }

    /// Assigns the object to the node of a valid `Binding`, which is possible only once. `time` is in text form.
    ///
    /// Returns the reason why the object can't be assigned.
    fn bind(&self, _object: &mut Value, _binding: &Value, _time: &Value) -> Result<(), String> {
        Err("objects of this kind are not assigned to nodes".into())
    }

    /// Checks the parameters of an action such as `log`, before its object is read.
    fn check_parameters(
        &self,
        _subresource: &str,
        _name: &str,
        _parameters: &[(String, String)],
    ) -> Result<(), Status> {
        Ok(())
    }

    /// Checks whether the object has what the parameters of an action name, such as a container.
    fn check_target(
        &self,
        _subresource: &str,
        _object: &Value,
        _parameters: &[(String, String)],
    ) -> Result<(), Status> {
        Ok(())
    }

    /// Returns whether there is anything that an action such as `log` could reach; if not, its response is empty.
    ///
    /// # Errors
    /// Returns the error of an action that has to reach something.
    fn reaches(&self, _subresource: &str, _object: &Value) -> Result<bool, Status> {
        Ok(true)
    }

    /// Returns where a kubelet answers for an action, by the parameters; `None` if the action doesn't lead to a node.
    fn at_kubelet(&self, _subresource: &str, _object: &Value, _parameters: &[(String, String)]) -> Option<AtKubelet> {
        None
    }

    /// Returns whether objects have a `metadata.generation`, which counts changes except those of metadata and status.
    fn has_generation(&self) -> bool {
        true
    }

    /// Returns whether an update with an empty list or map increments the generation, since Kubernetes compares it with
    /// an absent one.
    fn counts_empty_as_change(&self) -> bool {
        false
    }

    /// Returns whether an update of the object itself increments the generation, given whether it changes anything but
    /// metadata and status.
    fn increments_generation(&self, _old: &Value, _new: &Value, changed: bool) -> bool {
        changed
    }

    /// Converts from the served to the stored form, for built-in kinds in which they differ.
    fn decode(&self, _object: &mut Value) {}

    /// Converts from the stored to the served form, for built-in kinds in which they differ.
    fn encode(&self, _object: &mut Value) {}

    /// Returns the `status` of a review, such as a `SelfSubjectReview`, which is answered but not stored. The response
    /// contains it only if [`Self::validate`] finds no errors. Returns `None` for all other kinds.
    fn review(&self, _review: &Value, _requester: &Requester<'_>) -> Option<Result<Value, Status>> {
        None
    }

    /// Returns all objects of a kind whose objects are computed for each request instead of stored. They can only be
    /// read.
    fn computed(&self) -> Option<Vec<Value>> {
        None
    }

    /// Returns the stored resource of whose objects those of this kind are derived at each request, for a kind whose
    /// objects aren't stored. They can only be read.
    fn derived_from(&self) -> Option<DerivedFrom> {
        None
    }

    /// Returns the object of this kind that is derived from an object of [`Self::derived_from`], if there is one now.
    /// It has the same name, namespace and labels.
    fn derive(&self, _object: &Value, _now: Timestamp) -> Option<Value> {
        None
    }

    /// Returns the error about an object from which none is derived now.
    fn underived(&self, object: &Value) -> Status {
        Status::not_found("", "", object["metadata"]["name"].as_str().unwrap_or_default())
    }

    /// Returns whether the response to a review repeats neither its metadata nor its content.
    fn answers_status_only(&self) -> bool {
        false
    }

    /// Returns whether the response to a review contains the time of its creation.
    fn stamps_review(&self) -> bool {
        false
    }

    /// Checks a valid object as the validating admission plugins of Kubernetes do, such as permissions that depend on
    /// the content: users must not grant permissions that they don't have. `old` is set on update.
    fn check_access(&self, _requester: &Requester<'_>, _old: Option<&Value>, _new: &Value) -> Result<(), Status> {
        Ok(())
    }

    /// Like [`Self::check_access`], for an update of the status, or of a part of it as in [`Self::prepare_status`].
    fn check_status_access(
        &self,
        requester: &Requester<'_>,
        _subresource: &str,
        old: &Value,
        new: &Value,
    ) -> Result<(), Status> {
        self.check_access(requester, Some(old), new)
    }

    /// Like [`Self::check_access`], for an update of a part of the object as in [`Self::prepare_part`].
    fn check_part_access(
        &self,
        requester: &Requester<'_>,
        _subresource: &str,
        old: &Value,
        new: &Value,
    ) -> Result<(), Status> {
        self.check_access(requester, Some(old), new)
    }

    /// Checks whether a node has what a valid object requests, whose resources change.
    fn check_node(&self, _object: &Value, _node: &Value) -> Result<(), Status> {
        Ok(())
    }

    /// Returns the collection in which objects of this kind are bound to others of their name instead of being stored:
    /// the group, version and resource.
    fn binds(&self) -> Option<[&'static str; 3]> {
        None
    }

    /// Returns the error about a field selector with a label that the kind doesn't have.
    fn unsupported_field(&self, label: &str) -> String {
        format!("field label not supported: {label}")
    }

    /// Returns whether admission webhooks are called for objects of this kind. They aren't called for webhook
    /// configurations, since a broken one could otherwise never be repaired.
    fn is_admitted(&self) -> bool {
        true
    }

    /// Observes every committed change, in revision order and before any watcher. `before` is absent for a creation,
    /// `after` for a removal. Kinds that affect how the server works implement it: CRDs, roles, webhook configurations.
    fn committed(&self, _before: Option<&Value>, _after: Option<&Value>) {}
}

/// A write to the status of an object by a controller in the API server, as [`Strategy::settled`] returns it.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// The changed object, which `kube-apiserver` writes.
    Update(Value),
    /// The field manager and the configuration that it applies.
    Apply(&'static str, Value),
}

/// The stored resource of [`Strategy::derived_from`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DerivedFrom {
    /// Where its objects are stored, `group/plural`.
    pub storage: &'static str,
    /// Its name in errors about objects that don't exist.
    pub resource: &'static str,
}

/// The strategy of a kind without specific rules.
#[derive(Debug)]
pub struct DefaultStrategy;

impl Strategy for DefaultStrategy {}
