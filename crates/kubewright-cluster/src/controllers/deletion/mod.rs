//! Deletion of namespaces and of custom kinds: their objects are deleted first, and then the namespace or definition
//! itself.
//!
//! The remaining objects are known from the feed, so nothing is polled. Objects that can't be deleted are reported in
//! conditions.

mod conditions;
mod contents;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{ApiServer, Change, ChangeKind, Feed, registry::Resource};
use serde_json::{Value, json};

use self::contents::{Contents, Item, RemainingContent, Scope};
use super::{
    batch::{self, Batch},
    retry::{Retries, until},
};
use crate::{
    object_client::{DeleteOptions, ObjectClient, ObjectPath, is_conflict, is_gone},
    panics::restarting,
};

/// The finalizer of a custom resource definition whose objects have to be deleted first.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// The finalizer of a namespace whose content has to be deleted first.
const KUBERNETES: &str = "kubernetes";
/// The minimum time between two writes of conditions.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Empties kinds and, with the client of their controller, namespaces that are being deleted, for as long as it is
/// polled.
pub(crate) async fn run(api: ApiServer, kinds: ObjectClient, namespaces: Option<ObjectClient>, clock: SharedClock) {
    let start = || {
        let terminator = Terminator {
            kinds: kinds.clone(),
            namespaces: namespaces.clone(),
            clock: clock.clone(),
            feed: api.feed(),
            contents: Contents::default(),
            ending: BTreeMap::new(),
            dirty: BTreeSet::new(),
            retries: Retries::up_to(LONGEST_PAUSE),
        };
        terminator.run()
    };
    restarting("namespace-controller", clock.clone(), start).await;
}

struct Terminator {
    /// The client for the objects of kinds.
    kinds: ObjectClient,
    /// The client for the content of namespaces, if they are emptied, too.
    namespaces: Option<ObjectClient>,
    clock: SharedClock,
    feed: Feed,
    contents: Contents,
    /// The scopes that are being deleted.
    ending: BTreeMap<Scope, Terminating>,
    dirty: BTreeSet<Scope>,
    retries: Retries<Scope>,
}

/// A namespace or a custom resource definition that is being deleted.
#[derive(Debug)]
struct Terminating {
    address: ObjectPath,
    object: Arc<Value>,
    /// The time of the last write of conditions.
    reported: Option<Duration>,
}

impl Terminator {
    async fn run(mut self) {
        loop {
            let now = self.clock.monotonic();
            self.dirty.extend(self.retries.due(now));
            if self.feed.is_synced() {
                while let Some(scope) = self.dirty.pop_first() {
                    self.proceed(scope).await;
                }
            }
            let timer = until(self.retries.next(), now);
            tokio::select! {
                biased;
                batch = batch::next(&mut self.feed) => self.take_all(&batch),
                () = timer => {}
            }
        }
    }

    fn take_all(&mut self, batch: &Batch) {
        if batch.restarted {
            self.contents = Contents::default();
            self.ending.clear();
        }
        for change in &batch.changes {
            self.take(change);
        }
    }

    fn take(&mut self, change: &Change) {
        let Some(item) = item(&change.resource, &change.stored.outline()) else { return };
        let gone = change.kind == ChangeKind::Deleted;
        let scope = scope(change);
        if let Some(scope) = scope.filter(|scope| self.client(scope).is_some()) {
            if gone {
                self.ending.remove(&scope);
                self.retries.forget(&scope);
            } else if item.deleting {
                let (address, object) = (item.address.clone(), change.object().clone());
                let reported = self.ending.get(&scope).and_then(|ending| ending.reported);
                self.ending.insert(scope.clone(), Terminating { address, object, reported });
                self.dirty.insert(scope);
            }
        }
        self.dirty.extend(item.scopes().filter(|scope| self.ending.contains_key(scope)));
        if gone {
            self.contents.remove(&item);
        } else {
            self.contents.set(item);
        }
    }

    /// Returns the client that empties a scope, if it is emptied here.
    fn client(&self, scope: &Scope) -> Option<&ObjectClient> {
        match scope {
            Scope::Namespace(_) => self.namespaces.as_ref(),
            Scope::Kind(_) => Some(&self.kinds),
        }
    }

    /// Takes the next step for a scope that is being deleted.
    async fn proceed(&mut self, scope: Scope) {
        if !self.ending.contains_key(&scope) {
            return;
        }
        let Some(client) = self.client(&scope).cloned() else { return };
        let remains = self.contents.remains(&scope);
        let failures = delete_contents(&client, &remains).await;
        let Some(ending) = self.ending.get_mut(&scope) else { return };
        let now = self.clock.monotonic();
        let held = is_held(&scope, &ending.object);
        let reported = if held && !failures.is_empty() || remains.to_delete.is_empty() {
            report(&client, &self.clock, &scope, ending, &remains, &failures).await
        } else {
            Ok(true)
        };
        let result = match reported {
            Ok(true) if remains.is_empty() && held => release(&client, &scope, ending).await,
            other => other,
        };
        match result {
            Ok(true) if failures.is_empty() => self.retries.forget(&scope),
            Err(error) if is_gone(&error) => self.retries.forget(&scope),
            Err(error) if is_conflict(&error) => self.retries.failed(scope, now),
            Ok(true) => self.retries.failed(scope, now),
            Ok(false) => self.retries.later(scope, now + REPORT_EVERY),
            Err(error) => {
                tracing::warn!(%error, address = %ending.address, "failed to continue a deletion");
                self.retries.failed(scope, now);
            }
        }
    }
}

/// Deletes the objects that are not being deleted yet, and returns the failures.
async fn delete_contents(client: &ObjectClient, remains: &RemainingContent) -> Vec<String> {
    let mut failures = Vec::new();
    for collection in &remains.to_delete {
        let how = DeleteOptions { propagation: Some("Background"), ..DeleteOptions::default() };
        if let Err(error) = client.delete(collection, &how).await
            && !is_gone(&error)
        {
            failures.push(format!("{}: {error}", collection.plural));
        }
    }
    failures
}

/// Writes the conditions if they have changed. Returns false if the previous write was too recent.
async fn report(
    client: &ObjectClient,
    clock: &SharedClock,
    scope: &Scope,
    ending: &mut Terminating,
    remains: &RemainingContent,
    failures: &[String],
) -> Result<bool, kube::Error> {
    let now = clock.now();
    let present = &ending.object["status"]["conditions"];
    if remains.is_empty() {
        return Ok(true);
    }
    let conditions = match scope {
        Scope::Namespace(_) => conditions::namespace(present, remains, failures, now),
        Scope::Kind(_) => conditions::custom_kind(present, failures, now),
    };
    if *present == conditions {
        return Ok(true);
    }
    let monotonic = clock.monotonic();
    if ending.reported.is_some_and(|at| monotonic < at + REPORT_EVERY) {
        return Ok(false);
    }
    ending.reported = Some(monotonic);
    let patch = json!({"metadata": {"uid": ending.object["metadata"]["uid"]}, "status": {"conditions": conditions}});
    let answer = client.merge(&ending.address, "/status", &patch).await?;
    ending.object = Arc::new(answer);
    Ok(true)
}

/// Removes the finalizer of an empty scope.
async fn release(client: &ObjectClient, scope: &Scope, ending: &Terminating) -> Result<bool, kube::Error> {
    let mut object = (*ending.object).clone();
    let (list, held) = match scope {
        Scope::Namespace(_) => (&mut object["spec"]["finalizers"], KUBERNETES),
        Scope::Kind(_) => (&mut object["metadata"]["finalizers"], CLEANUP),
    };
    let kept = list.as_array().into_iter().flatten().filter(|name| *name != held).cloned().collect::<Vec<_>>();
    *list = kept.into();
    match scope {
        Scope::Namespace(_) => client.replace(&ending.address, "/finalize", &object).await?,
        Scope::Kind(_) => {
            let metadata = &object["metadata"];
            let patch = json!({"metadata": {
                "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "finalizers": metadata["finalizers"],
            }});
            // As in Kubernetes: a definition that isn't valid any more can be deleted.
            client.merge(&ending.address, "/status", &patch).await?
        }
    };
    Ok(true)
}

/// Returns whether a scope has this controller's finalizer.
fn is_held(scope: &Scope, object: &Value) -> bool {
    let (list, held) = match scope {
        Scope::Namespace(_) => (&object["spec"]["finalizers"], KUBERNETES),
        Scope::Kind(_) => (&object["metadata"]["finalizers"], CLEANUP),
    };
    list.as_array().is_some_and(|list| list.iter().any(|name| name == held))
}

/// Returns the scope that must be empty before the object can be removed.
fn scope(change: &Change) -> Option<Scope> {
    match (&*change.resource.group, &*change.resource.kind) {
        ("", "Namespace") => Some(Scope::Namespace(change.object()["metadata"]["name"].as_str()?.into())),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let spec = &change.object()["spec"];
            let plural = spec["names"]["plural"].as_str()?;
            Some(Scope::Kind(format!("{}/{plural}", spec["group"].as_str()?)))
        }
        _ => None,
    }
}

fn item(resource: &Resource, object: &Value) -> Option<Item> {
    let metadata = &object["metadata"];
    let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
    Some(Item {
        uid: metadata["uid"].as_str()?.into(),
        // Objects of built-in kinds aren't deleted with a definition, whatever names the definition has.
        custom_kind: resource.schema.custom.then(|| resource.storage.to_string()),
        address: ObjectPath::of(resource, metadata["namespace"].as_str(), metadata["name"].as_str()?),
        deleting: !metadata["deletionTimestamp"].is_null(),
        finalizers: finalizers.filter_map(|name| Some(name.as_str()?.to_owned())).collect(),
    })
}
