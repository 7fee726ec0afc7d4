//! APIServices: whether the servers that they name are available, and one for each version of a custom kind.
//! kube-apiserver does both itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use jiff::Timestamp;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{ApiServer, Availability, Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    batch,
    kind::Kind,
    retry::{Retries, until},
    value::{is_deleting, list, text},
};
use crate::object_client::{DeleteOptions, ObjectClient, is_conflict, is_gone};

const API_SERVICE: Kind = Kind { group: "apiregistration.k8s.io", kind: "APIService", plural: "apiservices" };
const SERVICE: Kind = Kind { group: "", kind: "Service", plural: "services" };
const SLICE: Kind = Kind { group: "discovery.k8s.io", kind: "EndpointSlice", plural: "endpointslices" };
/// The label of an APIService that is created and deleted with its version.
const MANAGED: (&str, &str) = ("kube-aggregator.kubernetes.io/automanaged", "true");
/// The interval between two checks of a server that is available.
const PERIOD: Duration = Duration::from_secs(30);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The priorities of custom kinds: of the group, and of each version, so that versions are ordered by their names.
const CUSTOM_PRIORITIES: (i64, i64) = (1000, 100);

/// Creates an APIService for each version of a custom kind, and deletes it with the version, for as long as it is
/// polled.
pub(crate) async fn register(api: ApiServer, client: ObjectClient, clock: SharedClock) {
    let mut changes = api.registry().changes();
    let mut retries = Retries::up_to(LONGEST_PAUSE);
    loop {
        changes.mark_unchanged();
        let now = clock.monotonic();
        retries.due(now);
        match register_once(&api, &client).await {
            Ok(()) => retries.forget(&()),
            Err(error) => {
                tracing::debug!(%error, "failed to maintain the APIServices of custom kinds");
                retries.failed((), now);
            }
        }
        tokio::select! {
            biased;
            changed = changes.changed() => if changed.is_err() { return },
            () = until(retries.next(), now) => {}
        }
    }
}

async fn register_once(api: &ApiServer, client: &ObjectClient) -> Result<(), kube::Error> {
    let custom = api.registry().all().into_iter().filter(|resource| resource.schema.custom);
    let wanted: BTreeMap<String, (String, String)> = custom
        .map(|resource| (resource.group.to_string(), resource.version.to_string()))
        .map(|(group, version)| (format!("{version}.{group}"), (group, version)))
        .collect();
    let all = client.get(&API_SERVICE.address("", "")).await?.unwrap_or_default();
    let present: BTreeMap<&str, &Value> =
        list(&all, "/items").iter().map(|object| (text(object, "/metadata/name"), object)).collect();
    for (name, (group, version)) in wanted.iter().filter(|(name, _)| !present.contains_key(name.as_str())) {
        let object = json!({
            "apiVersion": API_SERVICE.api_version(), "kind": API_SERVICE.kind,
            "metadata": {"name": name, "labels": {(MANAGED.0): MANAGED.1}},
            "spec": {
                "group": group, "version": version, "groupPriorityMinimum": CUSTOM_PRIORITIES.0,
                "versionPriority": CUSTOM_PRIORITIES.1,
            },
        });
        match client.create(&API_SERVICE.address("", ""), "", &object).await {
            Err(error) if !is_conflict(&error) => return Err(error),
            _ => {}
        }
    }
    let is_managed = |object: &Value| object["metadata"]["labels"][MANAGED.0] == MANAGED.1;
    for (name, object) in present.iter().filter(|(name, object)| is_managed(object) && !wanted.contains_key(**name)) {
        let how = DeleteOptions { uid: Some(text(object, "/metadata/uid")), ..DeleteOptions::default() };
        match client.delete(&API_SERVICE.address("", name), &how).await {
            Err(error) if !is_conflict(&error) && !is_gone(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Maintains the condition `Available` of APIServices that name a Service, for as long as it is polled. Reads nothing
/// while no such APIService exists.
pub(crate) async fn check(api: ApiServer, client: ObjectClient, clock: SharedClock) {
    loop {
        api.aggregation().any_remote().await;
        check_while_any(&api, &client, &clock).await;
    }
}

async fn check_while_any(api: &ApiServer, client: &ObjectClient, clock: &SharedClock) {
    let aggregation = api.aggregation();
    let mut feed = api.feed();
    let (mut services, mut retries) = (Services::default(), Retries::up_to(LONGEST_PAUSE));
    loop {
        let now = clock.monotonic();
        if feed.is_synced() {
            services.due.extend(retries.due(now));
            let due = std::mem::take(&mut services.due);
            let checks = due.into_iter().map(async |name| {
                let found = aggregation.check(&name).await;
                (name, found)
            });
            for (name, found) in join_all(checks).await {
                let Some(object) = services.all.get(&name).filter(|object| !is_deleting(object)) else {
                    retries.forget(&name);
                    continue;
                };
                let (is_available, condition) = condition(object, found.as_ref(), clock.now());
                let written = match condition {
                    Some(condition) => write(client, &name, condition).await,
                    None => Ok(()),
                };
                match written {
                    Ok(()) if is_available => {
                        retries.forget(&name);
                        if found.is_some() {
                            retries.later(name, now + PERIOD);
                        }
                    }
                    Ok(()) => retries.failed(name, now),
                    Err(error) => {
                        tracing::debug!(%error, name, "failed to write the condition of an APIService");
                        retries.failed(name, now);
                    }
                }
            }
            if services.due.is_empty() && aggregation.remote_names().is_empty() && retries.next().is_none() {
                return;
            }
        }
        tokio::select! {
            biased;
            batch = batch::next(&mut feed) => {
                if batch.restarted {
                    services = Services::default();
                }
                batch.changes.iter().for_each(|change| services.take(change));
            }
            () = until(retries.next(), now) => {}
        }
    }
}

async fn write(client: &ObjectClient, name: &str, condition: Value) -> Result<(), kube::Error> {
    let patch = json!({"status": {"conditions": [condition]}});
    match client.merge(&API_SERVICE.address("", name), "/status", &patch).await {
        Err(error) if !is_gone(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Returns whether an APIService is available, and its condition if that has to be written. Without a result of a
/// check, the API server itself serves the version.
fn condition(object: &Value, found: Option<&Availability>, now: Timestamp) -> (bool, Option<Value>) {
    let (is_available, reason, message) = match found {
        Some(found) => (found.is_available, found.reason, found.message.as_str()),
        None => (true, "Local", "Local APIServices are always available"),
    };
    let status = if is_available { "True" } else { "False" };
    let present = list(object, "/status/conditions").iter().find(|one| text(one, "/type") == "Available");
    let mut since = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    if let Some(present) = present.filter(|present| text(present, "/status") == status) {
        if (text(present, "/reason"), text(present, "/message")) == (reason, message) {
            return (is_available, None);
        }
        since = present["lastTransitionTime"].clone();
    }
    let condition = json!({
        "type": "Available", "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
    });
    (is_available, Some(condition))
}

/// The APIServices that name a Service or did so. Pure.
#[derive(Debug, Default)]
struct Services {
    all: BTreeMap<String, Arc<Value>>,
    /// The names of those to check.
    due: BTreeSet<String>,
}

impl Services {
    fn take(&mut self, change: &Change) {
        if API_SERVICE.is_of(change) {
            let object = change.object();
            let name = text(object, "/metadata/name").to_owned();
            let is_remote = object["spec"]["service"].is_object();
            if change.kind == ChangeKind::Deleted || !(is_remote || self.all.contains_key(&name)) {
                self.all.remove(&name);
                self.due.remove(&name);
                return;
            }
            let before = self.all.insert(name.clone(), object.clone());
            if before.is_none_or(|before| before["spec"] != object["spec"]) {
                self.due.insert(name);
            }
        } else if SERVICE.is_of(change) {
            self.require(change.object(), text(change.object(), "/metadata/name"));
        } else if SLICE.is_of(change) {
            let object = change.object();
            self.require(object, text(&object["metadata"]["labels"], "/kubernetes.io~1service-name"));
        }
    }

    /// Checks the APIServices of a Service in the namespace of an object.
    fn require(&mut self, object: &Value, service: &str) {
        let namespace = text(object, "/metadata/namespace");
        let names_it = |one: &Value| {
            (text(one, "/spec/service/namespace"), text(one, "/spec/service/name")) == (namespace, service)
        };
        self.due.extend(self.all.iter().filter(|(_, one)| names_it(one)).map(|(name, _)| name.clone()));
    }
}
