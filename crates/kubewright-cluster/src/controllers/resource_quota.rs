//! The status of resource quotas: what they allow and what is used
//! (<https://kubernetes.io/docs/concepts/policy/resource-quotas/>).
//!
//! The API server refuses writes by this status, and records in it what each admitted object uses. This controller sets
//! it for new and changed quotas, and calculates it again when objects use less.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{
    ApiServer, Change, ChangeKind,
    registry::builtin::quota_usage::{self, Evaluator},
};
use serde_json::{Map, Value, json};

use super::{
    kind::Kind,
    objects::Objects,
    reconcile::{Controller, Key, Plan, Step},
};

const QUOTA: Kind = Kind { group: "", kind: "ResourceQuota", plural: "resourcequotas" };
const CUSTOM: Kind =
    Kind { group: "apiextensions.k8s.io", kind: "CustomResourceDefinition", plural: "customresourcedefinitions" };
/// The interval at which every quota is calculated again: the default of `--resource-quota-sync-period`. It finds pods
/// that are stuck in their deletion.
const RESYNC: Duration = Duration::from_secs(5 * 60);

/// The resource quota controller.
#[derive(Debug)]
pub(crate) struct ResourceQuotas {
    /// Knows which kinds exist.
    api: ApiServer,
    clock: SharedClock,
    quotas: BTreeMap<Key, Arc<Value>>,
    /// The objects whose content determines what they use, by resource. They are parsed only in namespaces with quotas.
    objects: BTreeMap<String, Objects>,
    /// The number of other objects, by namespace and resource.
    numbers: BTreeMap<String, BTreeMap<String, usize>>,
}

impl ResourceQuotas {
    /// Creates a controller for the kinds of a server.
    pub(crate) fn new(api: ApiServer, clock: SharedClock) -> Self {
        let (quotas, objects, numbers) = Default::default();
        Self { api, clock, quotas, objects, numbers }
    }

    /// Returns the quotas of a namespace.
    fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> + 'a {
        self.quotas.range(Key::first_of(namespace)..).take_while(move |(key, _)| key.namespace == namespace)
    }

    /// Processes a change of a quota. A change of its status is one by this controller or the server.
    fn take_quota(&mut self, key: &Key, change: &Change) -> bool {
        if change.kind == ChangeKind::Deleted {
            self.quotas.remove(key);
            return false;
        }
        let before = self.quotas.insert(key.clone(), change.object().clone());
        before.is_none_or(|before| before["spec"] != change.object()["spec"])
    }

    /// Processes a change of an object, and returns whether it can use less than before. Without a quota in the
    /// namespace, it is false.
    fn count(&mut self, evaluator: Evaluator<'_>, key: &Key, change: &Change) -> bool {
        let gone = change.kind == ChangeKind::Deleted;
        let resource = &*change.resource.storage;
        if evaluator.reads_objects() {
            let has_quota = self.in_namespace(&key.namespace).next().is_some();
            let objects = self.objects.entry(resource.to_owned()).or_default();
            let before = if has_quota { objects.get(key) } else { None };
            objects.take(change);
            let reduces =
                |before: Arc<Value>| gone || evaluator.reduces_usage(&before, change.object(), self.clock.now());
            return before.is_some_and(reduces);
        }
        if change.kind == ChangeKind::Modified {
            return false;
        }
        let numbers = self.numbers.entry(key.namespace.clone()).or_default();
        let number = numbers.entry(resource.to_owned()).or_default();
        *number = if gone { number.saturating_sub(1) } else { *number + 1 };
        numbers.retain(|_, number| *number > 0);
        if numbers.is_empty() {
            self.numbers.remove(&key.namespace);
        }
        gone
    }

    fn exists(&self, evaluator: Evaluator<'_>) -> bool {
        let is_of = |group: &str, plural: &str| (group, plural) == (evaluator.group(), evaluator.plural());
        self.api.registry().all().iter().any(|entry| entry.namespaced && is_of(&entry.group, &entry.plural))
    }

    /// Returns what is used of a quota. What can't be calculated remains as it is.
    fn used(&self, key: &Key, quota: &Value, now: Timestamp) -> Map<String, Value> {
        let hard = || quota["spec"]["hard"].as_object().into_iter().flatten().map(|(name, _)| name);
        let before = &quota["status"]["used"];
        let mut used: Map<String, Value> =
            hard().filter_map(|name| Some((name.clone(), before.get(name)?.clone()))).collect();
        let evaluators: BTreeSet<_> = hard().filter_map(|name| Evaluator::of_name(name)).collect();
        for evaluator in evaluators.into_iter().filter(|evaluator| self.exists(*evaluator)) {
            let resource = format!("{}/{}", evaluator.group(), evaluator.plural());
            let read: Vec<Arc<Value>>;
            let objects = if evaluator.reads_objects() {
                let objects = self.objects.get(&resource);
                read = objects.map(|objects| objects.in_namespace(&key.namespace)).unwrap_or_default();
                quota_usage::Objects::Read(read.iter().map(|object| &**object).collect())
            } else {
                let number = self.numbers.get(&key.namespace).and_then(|numbers| numbers.get(&resource));
                quota_usage::Objects::Number(number.copied().unwrap_or_default())
            };
            used.extend(quota_usage::used(quota, evaluator, &objects, now));
        }
        used
    }
}

/// Returns whether the status is that of the current spec. Otherwise an object may be created without being counted,
/// before the status is written.
fn is_settled(quota: &Value) -> bool {
    quota_usage::is_equal(&quota["spec"]["hard"], &quota["status"]["hard"])
}

/// Returns a merge patch that replaces a map.
fn replacement(before: &Value, after: Map<String, Value>) -> Value {
    let removed = before.as_object().into_iter().flatten().map(|(name, _)| (name.clone(), Value::Null));
    let mut patch: Map<String, Value> = removed.collect();
    patch.extend(after);
    patch.into()
}

impl Controller for ResourceQuotas {
    fn reset(&mut self) {
        *self = Self::new(self.api.clone(), self.clock.clone());
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        if CUSTOM.is_of(change) {
            let names_kind = |quota: &Value| {
                let hard = quota["spec"]["hard"].as_object();
                hard.is_some_and(|hard| hard.keys().any(|name| name.starts_with("count/")))
            };
            return self.quotas.iter().filter(|(_, quota)| names_kind(quota)).map(|(key, _)| key.clone()).collect();
        }
        if !change.resource.namespaced {
            return Vec::new();
        }
        let Some((group, plural)) = change.resource.storage.split_once('/') else { return Vec::new() };
        let Some(evaluator) = Evaluator::of(group, plural) else { return Vec::new() };
        let Some(key) = Key::of(change.object()) else { return Vec::new() };
        let is_changed_quota = QUOTA.is_of(change) && self.take_quota(&key, change);
        let reduced = self.count(evaluator, &key, change);
        let counts = |quota: &Value| {
            let hard = quota["spec"]["hard"].as_object();
            hard.is_some_and(|hard| hard.keys().any(|name| evaluator.counts(name)))
        };
        let concerned = self.in_namespace(&key.namespace);
        let concerned = concerned.filter(|(_, quota)| (reduced || !is_settled(quota)) && counts(quota));
        let mut keys: Vec<_> = concerned.map(|(quota, _)| quota.clone()).collect();
        if is_changed_quota && !keys.contains(&key) {
            keys.push(key);
        }
        keys
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(quota) = self.quotas.get(key) else { return Plan::default() };
        let mut plan = Plan::of(&QUOTA, quota);
        plan.requeue_after(RESYNC);
        let used = self.used(key, quota, now);
        let (status, hard) = (&quota["status"], quota["spec"]["hard"].as_object().cloned().unwrap_or_default());
        if is_settled(quota) && quota_usage::is_equal(&status["used"], &used.clone().into()) {
            return plan;
        }
        // The server may count an object meanwhile.
        let patch = json!({
            "metadata": {"uid": quota["metadata"]["uid"], "resourceVersion": quota["metadata"]["resourceVersion"]},
            "status": {"hard": replacement(&status["hard"], hard), "used": replacement(&status["used"], used)},
        });
        plan.steps.push(Step::Merge(QUOTA.address(&key.namespace, &key.name), "/status", patch));
        plan
    }
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::clock::VirtualClock;

    use super::*;
    use crate::{
        controllers::batch,
        object_client::{ObjectClient, ObjectPath},
    };

    #[tokio::test]
    async fn objects_are_parsed_only_in_namespaces_with_quotas() {
        let api = ApiServer::builder().build();
        let client = ObjectClient::new(api.client());
        let mut quotas = ResourceQuotas::new(api.clone(), VirtualClock::starting_at(Timestamp::UNIX_EPOCH));
        let mut feed = api.feed();
        let create = async |plural: &str, body: Value| {
            client.create(&ObjectPath::core(plural, Some("default"), ""), "", &body).await.unwrap()
        };
        let containers = json!([{"name": "main", "image": "busybox"}]);
        create("pods", json!({"metadata": {"name": "a"}, "spec": {"containers": containers}})).await;
        client
            .merge(&ObjectPath::core("pods", Some("default"), "a"), "", &json!({"metadata": {"labels": {"a": "b"}}}))
            .await
            .unwrap();
        let take = |quotas: &mut ResourceQuotas, feed: &mut _| -> Vec<Key> {
            batch::ready(feed).changes.iter().flat_map(|change| quotas.take(change)).collect()
        };
        assert_eq!(take(&mut quotas, &mut feed), []);
        assert_eq!(quotas.objects["/pods"].number_parsed(), 0);
        create("resourcequotas", json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}})).await;
        let keys = take(&mut quotas, &mut feed);
        let plan = quotas.decide(&keys[0], Timestamp::UNIX_EPOCH);
        let Step::Merge(_, "/status", patch) = &plan.steps[0] else { panic!("{plan:?}") };
        assert_eq!(patch["status"]["used"]["pods"], "1");
        assert_eq!(quotas.objects["/pods"].number_parsed(), 1);
    }
}
