//! Where webhooks come into a write: between what the client asks for and what is stored.
//!
//! Nothing is locked while a webhook is asked. A change that it has seen is only committed if the object is still the one
//! that it was shown; otherwise all is done again.

use std::{future::ready, sync::Arc};

use futures::FutureExt;
use kubewright_apimachinery::status::Status;
use serde_json::{Value, json};

use super::{Call, lifecycle::Incoming, query::WriteOptions, update::Part};
use crate::{
    admission::{Attributes, NAMESPACES, Operation, Review},
    convert, meta,
    ownership::Owner,
    registry::Subresource,
    storage::Stored,
};

/// How often a change is tried anew that others' writes overtake while webhooks are asked.
pub(super) const TRIES: usize = 16;

/// A change of the object of a call, in the form that its endpoint exchanges. All objects are in served form.
pub(super) trait Edit: Sync {
    /// What the client wants, given what is there.
    fn ask(&self, served: &Value) -> Result<Incoming, Status>;

    /// The object to store when this is what is wanted, in stored form. Yields to other tasks while its validation takes
    /// long.
    fn make(&self, old: &Value, served: &Value, wanted: Value) -> impl Future<Output = Result<Value, Status>> + Send;

    /// The object as the endpoint shows it.
    fn show(&self, object: Arc<Value>) -> Result<Arc<Value>, Status> {
        Ok(object)
    }

    /// The `(group, version, kind)` of what is exchanged; `None` when it is the object itself.
    fn exchanges(&self) -> Option<(String, String, String)> {
        None
    }
}

/// A change of an object, or of a part of it, by a body: `ask` makes the new object of the old one.
pub(super) struct PartEdit<'a, F> {
    pub(super) call: &'a Call,
    pub(super) part: Part,
    pub(super) owner: &'a Owner<'a>,
    pub(super) ask: F,
}

impl<F: Fn(&Value) -> Result<Incoming, Status> + Sync> Edit for PartEdit<'_, F> {
    fn ask(&self, served: &Value) -> Result<Incoming, Status> {
        (self.ask)(served)
    }

    async fn make(&self, old: &Value, served: &Value, wanted: Value) -> Result<Value, Status> {
        self.call.prepare_update(self.part, old, served, wanted, self.owner).await
    }
}

/// What webhooks make of a body.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
}

/// What becomes of an edit.
#[derive(Debug)]
pub(super) struct Edited {
    pub(super) stored: Arc<Stored>,
    pub(super) warnings: Vec<String>,
}

impl Call {
    /// The webhooks to be asked about a request, if there are any.
    pub(super) fn review(
        &self,
        operation: Operation,
        name: &str,
        subresource: &str,
        exchanges: Option<(String, String, String)>,
        options: impl FnOnce() -> Value,
        dry_run: bool,
    ) -> Option<Review> {
        let admission = self.server.registry.admission();
        if !admission.concerns(&self.resource) {
            return None;
        }
        // A namespace is said to be in itself.
        let own = &*self.resource.storage == NAMESPACES;
        let attributes = Attributes {
            operation,
            resource: self.resource.clone(),
            subresource: subresource.to_owned(),
            exchanges,
            namespace: if own { name.to_owned() } else { self.namespace.clone() },
            name: name.to_owned(),
            options: options(),
            dry_run,
            user: self.user.clone(),
            warnings: self.warnings.clone(),
        };
        admission.review(&self.server, attributes)
    }

    /// Asks the webhooks about what is sent to a subresource that stores nothing of its own, and gives back what they make
    /// of it.
    pub(super) async fn admit_exchange(
        &self,
        operation: Operation,
        subresource: &Subresource,
        sent: Value,
        dry_run: bool,
    ) -> Result<Admitted, Status> {
        let (group, version, kind) = subresource.exchanges;
        // Of a connection a stream is exchanged; what is shown are its options.
        let kind = if operation == Operation::Connect { sent["kind"].as_str().unwrap_or_default() } else { kind };
        let exchanges = (group.to_owned(), version.to_owned(), kind.to_owned());
        let options = || match operation {
            Operation::Connect => Value::Null,
            _ if dry_run => json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"]}),
            _ => json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
        };
        let review = self.review(operation, &self.name, subresource.name, Some(exchanges), options, dry_run);
        let Some(review) = review else { return Ok(Admitted { object: sent, warnings: Vec::new() }) };
        let object = review.mutate(Some(sent), None).await?.unwrap_or_default();
        review.validate(Some(&object), None).await?;
        Ok(Admitted { object, warnings: review.warnings() })
    }

    /// Changes the object of this call, after asking the webhooks that want to be.
    pub(super) async fn edit(
        &self,
        edit: &impl Edit,
        options: &WriteOptions,
        subresource: &str,
    ) -> Result<Edited, Status> {
        let review = self.review(
            Operation::Update,
            &self.name,
            subresource,
            edit.exchanges(),
            || options.to_value(),
            options.dry_run,
        );
        if review.is_none() && self.is_at_hand()? {
            let edited = self.edit_at_once(edit, options);
            if let Some(edited) = edited.filter(|_| !self.conversions.is_wanting()) {
                return edited;
            }
        }
        for _ in 0..TRIES {
            let old = self.load(self.present()?).await?.value();
            let served = convert::to_served(&self.resource, &old);
            let Incoming { object, mut warnings } = self.decided(|| ready(edit.ask(&served))).await?;
            let new = match &review {
                Some(review) => {
                    let before = edit.show(served.clone())?;
                    let wanted = review.mutate(Some(object), Some(&before)).await?.unwrap_or_default();
                    let new = self.made(edit, &old, &served, wanted).await?;
                    let after = edit.show(convert::to_served(&self.resource, &Arc::new(new.clone())))?;
                    review.validate(Some(&after), Some(&before)).await?;
                    warnings.extend(review.warnings());
                    new
                }
                None => self.made(edit, &old, &served, object).await?,
            };
            let new = convert::save(&self.server, &self.resource, new).await?;
            if let Some(stored) = self.store_over(&old, new, options.dry_run)? {
                return Ok(Edited { stored: self.load(stored).await?, warnings });
            }
        }
        Err(Status::stale(&self.resource.group, &self.resource.plural, &self.name))
    }

    /// What an edit makes of what is wanted.
    async fn made(&self, edit: &impl Edit, old: &Value, served: &Value, wanted: Value) -> Result<Value, Status> {
        match &self.resource.versions {
            None => edit.make(old, served, wanted).await,
            Some(_) => self.decided(|| edit.make(old, served, wanted.clone())).await,
        }
    }

    /// A decision, made anew while it lacks conversions.
    async fn decided<T, D>(&self, decide: impl Fn() -> D) -> Result<T, Status>
    where
        D: Future<Output = Result<T, Status>>,
    {
        for _ in 0..TRIES {
            let decided = decide().await;
            if !self.conversions.make(&self.server, &self.resource).await? {
                return decided;
            }
        }
        Err(Status::internal("who owns the fields of this object can't be decided: its conversions never end"))
    }

    /// Whether the object is stored, and is to be stored, in the very version of this call.
    fn is_at_hand(&self) -> Result<bool, Status> {
        let resource = &self.resource;
        Ok(resource.versions.is_none()
            || convert::is_storage_version(resource) && convert::is_served_form(resource, &*self.present()?))
    }

    /// Edits in one step of the store; `None` when the edit takes so long that other tasks have to run in between.
    fn edit_at_once(&self, edit: &impl Edit, options: &WriteOptions) -> Option<Result<Edited, Status>> {
        let mut warnings = Vec::new();
        let mut yielded = false;
        let stored = self.modify(options.dry_run, |old| {
            let old = old.ok_or_else(|| self.not_found())?;
            let served = convert::to_served(&self.resource, old);
            let incoming = edit.ask(&served)?;
            warnings = incoming.warnings;
            let made = edit.make(old, &served, incoming.object).now_or_never();
            yielded = made.is_none();
            // Others own fields in other versions: a webhook has to be asked first.
            made.filter(|_| !self.conversions.is_wanting()).unwrap_or_else(|| Err(self.not_found()))
        });
        if yielded { None } else { Some(stored.map(|stored| Edited { stored, warnings })) }
    }

    /// Stores an object in the place of this very state of it; `None` if that is no longer there.
    fn store_over(&self, old: &Value, new: Value, dry_run: bool) -> Result<Option<Arc<Stored>>, Status> {
        let mut overtaken = false;
        let written = self.modify(dry_run, |present| {
            overtaken = !present.is_some_and(|present| is_same_state(present, old));
            if overtaken { Err(self.not_found()) } else { Ok(new.clone()) }
        });
        if overtaken { Ok(None) } else { written.map(Some) }
    }
}

/// Whether two values are one object at one version.
pub(super) fn is_same_state(one: &Value, other: &Value) -> bool {
    ["uid", "resourceVersion"].iter().all(|field| meta::text(one, field) == meta::text(other, field))
}
