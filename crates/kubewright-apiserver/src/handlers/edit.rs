//! Changes of existing objects, with admission by webhooks.
//!
//! No lock is held during a webhook call. The change is committed only if the object is still in the state that the
//! webhook received. Otherwise, everything is repeated.

use std::{future::ready, sync::Arc};

use futures::FutureExt;
use kubewright_apimachinery::status::Status;
use serde_json::Value;

use super::{call::Call, lifecycle::DecodedBody, part::Part, query::WriteOptions, settle::settle};
use crate::{
    admission::{Attributes, NAMESPACES, Operation, Review},
    codec,
    managed_fields::{self, Manager},
    meta,
    object_type::ObjectType,
    registry::Subresource,
    storage::Stored,
};

/// The maximum number of attempts of a change that conflicts with other writes during webhook calls.
pub(super) const MAX_ATTEMPTS: usize = 16;

/// A change of a call's object, in the representation of its endpoint. All objects are in served form.
pub(super) trait Edit: Sync {
    /// Returns the object that the client requests, given the current one, with its defaults and the owners of its
    /// fields.
    fn desired(&self, served: &Value) -> Result<DecodedBody, Status>;

    /// Changes the requested object as the mutating plugins of its kind do. `old` is in stored form.
    fn admit(&self, _old: &Value, desired: Value) -> Result<Value, Status> {
        Ok(desired)
    }

    /// Returns the object to store for the requested one, in stored form. Yields to other tasks if its validation takes
    /// long.
    fn prepare(
        &self,
        old: &Value,
        served: &Value,
        desired: Value,
    ) -> impl Future<Output = Result<Value, Status>> + Send;

    /// Returns the object in the representation of the endpoint.
    fn view(&self, object: Arc<Value>) -> Result<Arc<Value>, Status> {
        Ok(object)
    }

    /// Returns the current object as those who change it see it.
    fn before(&self, served: Arc<Value>) -> Result<Arc<Value>, Status> {
        self.view(served)
    }

    /// Returns the `(group, version, kind)` of the endpoint, if it differs from that of the object.
    fn kind(&self) -> Option<(String, String, String)> {
        None
    }
}

/// A change of an object, or of a part of it. `desired` returns the new object for the old one.
pub(super) struct PartEdit<'a, F> {
    pub(super) call: &'a Call,
    pub(super) part: Part,
    pub(super) manager: &'a Manager<'a>,
    pub(super) desired: F,
}

impl<F: Fn(&Value) -> Result<DecodedBody, Status> + Sync> Edit for PartEdit<'_, F> {
    fn desired(&self, served: &Value) -> Result<DecodedBody, Status> {
        let mut body = (self.desired)(served)?;
        body.object = self.call.complete(Some(served), body.object, self.manager);
        Ok(body)
    }

    fn admit(&self, old: &Value, desired: Value) -> Result<Value, Status> {
        match self.part {
            Part::Main => self.call.admit(Some(old), desired),
            Part::Other(subresource) => Ok(self.call.admit_part(subresource, old, desired)),
            Part::Status | Part::Approval | Part::Finalizers => Ok(desired),
        }
    }

    async fn prepare(&self, old: &Value, served: &Value, desired: Value) -> Result<Value, Status> {
        self.call.prepare_update(self.part, old, served, desired).await
    }
}

/// A body after admission.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
}

/// The result of an edit.
#[derive(Debug)]
pub(super) struct Edited {
    pub(super) stored: Arc<Stored>,
    pub(super) warnings: Vec<String>,
}

impl Call {
    /// Returns the review of a request by webhooks, or `None` if none matches it or if the user skips admission.
    pub(super) fn review(
        &self,
        operation: Operation,
        name: &str,
        subresource: &str,
        subresource_kind: Option<(String, String, String)>,
        options: impl FnOnce() -> Value,
        dry_run: bool,
    ) -> Option<Review> {
        if self.user.skips_admission || !self.state.admission.may_match(&self.resource) {
            return None;
        }
        // A namespace counts as being in itself.
        let own = &*self.resource.storage == NAMESPACES;
        let attributes = Attributes {
            operation,
            resource: self.resource.clone(),
            subresource: subresource.to_owned(),
            subresource_kind,
            namespace: if own { name.to_owned() } else { self.namespace.clone() },
            name: name.to_owned(),
            options: options(),
            dry_run,
            user: self.user.clone(),
            warnings: self.warnings.clone(),
            audit: self.audit.clone(),
        };
        Review::new(&self.state.admission, attributes)
    }

    /// Runs admission for the options of a connection, of a kind of the subresource. Returns them as changed by the
    /// webhooks.
    pub(super) async fn admit_connection(&self, subresource: &Subresource, options: Value) -> Result<Admitted, Status> {
        let (group, version, _) = subresource.kind;
        let kind = options["kind"].as_str().unwrap_or_default();
        let kind = (group.to_owned(), version.to_owned(), kind.to_owned());
        let review = self.review(Operation::Connect, &self.name, subresource.name, Some(kind), || Value::Null, false);
        let Some(review) = review else { return Ok(Admitted { object: options, warnings: Vec::new() }) };
        let object = review.mutate(Some(options), None, Ok).await?.unwrap_or_default();
        review.validate(Some(&object), None).await?;
        Ok(Admitted { object, warnings: review.warnings() })
    }

    /// Runs admission for a body sent to a subresource without stored objects, or to a resource of that kind, whose
    /// subresource is empty. Returns it as changed by the webhooks. `finish` changes it between those that mutate and
    /// those that validate.
    pub(super) async fn admit_body(
        &self,
        name: &str,
        (group, version, kind): (&str, &str, &str),
        sent: Value,
        options: &WriteOptions,
        finish: impl FnOnce(&mut Value) -> Result<(), Status>,
    ) -> Result<Admitted, Status> {
        let of = (group.to_owned(), version.to_owned(), kind.to_owned());
        let dry_run = options.dry_run;
        let review = self.review(Operation::Create, &self.name, name, Some(of), || options.to_value(), dry_run);
        let admit = |mut object: Value| {
            self.resource.strategy.admit_subresource(name, None, &mut object);
            object
        };
        let mut object = admit(sent);
        self.match_namespace(&mut object)?;
        self.restrict(Operation::Create, name, None, Some(&object))?;
        if let Some(ty) = ObjectType::of(group, version, kind) {
            ty.complete(&mut object);
            object = self.manager(&self.manager_name(options), name).track_body((group, version, kind), object);
        }
        if let Some(review) = &review {
            object = review.mutate(Some(object), None, |object| Ok(admit(object))).await?.unwrap_or_default();
        }
        finish(&mut object)?;
        if let Some(review) = &review {
            review.validate(Some(&object), None).await?;
        }
        Ok(Admitted { object, warnings: review.map(|review| review.warnings()).unwrap_or_default() })
    }

    /// Changes the object of this call, with admission by webhooks.
    pub(super) async fn edit(
        &self,
        edit: &impl Edit,
        options: &WriteOptions,
        subresource: &str,
    ) -> Result<Edited, Status> {
        let edited = self.change(edit, options, subresource).await?;
        if !options.dry_run {
            settle(&self.state, &self.resource, &self.key())?;
        }
        Ok(edited)
    }

    async fn change(&self, edit: &impl Edit, options: &WriteOptions, subresource: &str) -> Result<Edited, Status> {
        let review = self.review(
            Operation::Update,
            &self.name,
            subresource,
            edit.kind(),
            || options.to_value(),
            options.dry_run,
        );
        if review.is_none() && self.needs_no_conversion()? {
            let edited = self.edit_directly(edit, options, subresource);
            if let Some(edited) = edited.filter(|_| !self.conversions.are_missing()) {
                return edited;
            }
        }
        for _ in 0..MAX_ATTEMPTS {
            let old = self.load(self.present()?).await?.value();
            let served = codec::to_served(&self.resource, &old);
            let DecodedBody { object, mut warnings } = self.decide(|| ready(edit.desired(&served))).await?;
            self.restrict(Operation::Update, subresource, Some(&served), Some(&object))?;
            let object = edit.admit(&old, object)?;
            let new = match &review {
                Some(review) => {
                    let before = edit.view(served.clone())?;
                    let managed = object["metadata"].get("managedFields").cloned();
                    let with_owners = edit.before(served.clone())?;
                    let desired =
                        review.mutate(Some(object), Some(&with_owners), |object| edit.admit(&old, object)).await?;
                    let mut desired = desired.unwrap_or_default();
                    warnings.extend(managed_fields::repair(managed, &mut desired));
                    warnings.extend(self.deduplicate_admitted(&mut desired));
                    self.match_namespace(&mut desired)?;
                    let new = self.prepare(edit, &old, &served, desired).await?;
                    let after = edit.view(codec::to_served(&self.resource, &Arc::new(new.clone())))?;
                    review.validate(Some(&after), Some(&before)).await?;
                    warnings.extend(review.warnings());
                    new
                }
                None => self.prepare(edit, &old, &served, object).await?,
            };
            let new = codec::save(&self.state.webhook_client, &self.resource, new).await?;
            if let Some(stored) = self.store_over(&old, new, options.dry_run)? {
                return Ok(Edited { stored: self.load(stored).await?, warnings });
            }
        }
        Err(Status::stale(&self.resource.group, &self.resource.plural, &self.name))
    }

    /// Returns the object to store for the requested one.
    async fn prepare(&self, edit: &impl Edit, old: &Value, served: &Value, desired: Value) -> Result<Value, Status> {
        match &self.resource.versions {
            None => edit.prepare(old, served, desired).await,
            Some(_) => self.decide(|| edit.prepare(old, served, desired.clone())).await,
        }
    }

    /// Makes a decision, and repeats it while conversions are missing.
    async fn decide<T, D>(&self, decide: impl Fn() -> D) -> Result<T, Status>
    where
        D: Future<Output = Result<T, Status>>,
    {
        for _ in 0..MAX_ATTEMPTS {
            let decision = decide().await;
            if !self.conversions.make(&self.state.webhook_client, &self.resource).await? {
                return decision;
            }
        }
        Err(Status::internal("failed to decide who owns the fields of the object: each conversion needs another one"))
    }

    /// Returns whether the object is stored in the version of this call and remains in it.
    fn needs_no_conversion(&self) -> Result<bool, Status> {
        let resource = &self.resource;
        Ok(resource.versions.is_none()
            || codec::is_storage_version(resource) && codec::is_served_form(resource, &*self.present()?))
    }

    /// Edits in one transaction. Returns `None` if the edit takes so long that it must yield to other tasks.
    fn edit_directly(
        &self,
        edit: &impl Edit,
        options: &WriteOptions,
        subresource: &str,
    ) -> Option<Result<Edited, Status>> {
        let mut warnings = Vec::new();
        let mut yielded = false;
        let stored = self.modify(options.dry_run, |old| {
            let old = old.ok_or_else(|| self.not_found())?;
            let served = codec::to_served(&self.resource, old);
            let incoming = edit.desired(&served)?;
            warnings = incoming.warnings;
            self.restrict(Operation::Update, subresource, Some(&served), Some(&incoming.object))?;
            let desired = edit.admit(old, incoming.object)?;
            let new = edit.prepare(old, &served, desired).now_or_never();
            yielded = new.is_none();
            // Other managers own fields in other versions, so a webhook has to convert first. The caller detects this
            // and drops the error.
            new.filter(|_| !self.conversions.are_missing()).unwrap_or_else(|| Err(self.not_found()))
        });
        if yielded { None } else { Some(stored.map(|stored| Edited { stored, warnings })) }
    }

    /// Replaces this state of the object. Returns `None` if the object has changed since.
    fn store_over(&self, old: &Value, new: Value, dry_run: bool) -> Result<Option<Arc<Stored>>, Status> {
        let mut conflict = false;
        let written = self.modify(dry_run, |present| {
            conflict = !present.is_some_and(|present| is_same_state(present, old));
            if conflict { Err(self.not_found()) } else { Ok(new.clone()) }
        });
        if conflict { Ok(None) } else { written.map(Some) }
    }
}

/// Returns whether two values are the same object at the same version.
pub(super) fn is_same_state(one: &Value, other: &Value) -> bool {
    ["uid", "resourceVersion"].iter().all(|field| meta::text(one, field) == meta::text(other, field))
}
