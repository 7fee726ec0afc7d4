//! The check of writes against the quotas of their namespace.

use kubewright_apimachinery::status::Status;
use serde_json::Value;

use super::call::Call;
use crate::{
    decoding,
    managed_fields::{Conversions, Manager},
    plugins::AdmissionPlugin,
    registry::builtin::quota_usage::{self, Evaluator, Write},
    storage::Attached,
};

/// The field manager of what the server itself records.
const MANAGER: &str = "kube-apiserver";

impl Call {
    /// Returns the quotas that have to be changed with an object of this call, which is new or replaces `old`. Both are
    /// in stored form.
    ///
    /// # Errors
    /// Returns 403 if a quota forbids the write.
    pub(super) fn charge(&self, old: Option<&Value>, new: &Value) -> Result<Vec<Attached>, Status> {
        let resource = &*self.resource;
        let Some(evaluator) = Evaluator::of(&resource.group, &resource.plural).filter(|_| resource.namespaced) else {
            return Ok(Vec::new());
        };
        if !self.state.plugins.has(AdmissionPlugin::ResourceQuota) {
            return Ok(Vec::new());
        }
        let quotas = self.state.store.of_namespace(quota_usage::STORAGE, &self.namespace);
        if quotas.is_empty() {
            return Ok(Vec::new());
        }
        let values: Vec<_> = quotas.iter().map(|(_, stored)| stored.value()).collect();
        let (now, subresource) = (self.state.clock.now(), self.subresource.as_deref().unwrap_or_default());
        let write = Write { evaluator, subresource, old, new, now };
        let charged = quota_usage::charge(&write, values.iter().map(|value| &**value)).map_err(|why| {
            let name = new["metadata"]["name"].as_str().unwrap_or_default();
            Status::forbidden(&resource.group, &resource.plural, name, &why)
        })?;
        let kind =
            self.state.registry.first(|kind| *kind.storage == *quota_usage::STORAGE).filter(|_| !charged.is_empty());
        let Some(kind) = kind else { return Ok(Vec::new()) };
        let conversions = Conversions::default();
        let manager = Manager {
            name: MANAGER,
            subresource: "status",
            applies: false,
            force: false,
            now,
            conversions: &conversions,
        };
        let attach = |(place, used): (usize, Value)| {
            let (key, stored) = &quotas[place];
            let mut after = (*values[place]).clone();
            after["status"]["used"] = used;
            after = manager.track(&kind, Some(&values[place]), after);
            decoding::complete(&kind, &mut after);
            Attached { storage: kind.storage.clone(), key: key.clone(), before: stored.clone(), value: after }
        };
        Ok(charged.into_iter().map(attach).collect())
    }
}
