//! Objects in the versions in which others own fields of them.
//!
//! Who owns what is decided without waiting, and a webhook may have to be asked before. So a decision notes which conversions it lacks,
//! they are made, and it is made again.

use std::{collections::BTreeMap, mem, sync::Arc};

use kubewright_apimachinery::{
    apply::{self, Converted},
    status::Status,
};
use parking_lot::Mutex;
use serde_json::Value;

use super::Versions;
use crate::{registry::Resource, server::Inner};

/// The conversions of one request's decisions.
#[derive(Debug, Default)]
pub(crate) struct Conversions(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Objects, by the version that is wanted; and what came of them.
    known: Vec<(Value, String, Arc<Value>)>,
    wanted: BTreeMap<String, Vec<Value>>,
}

impl Conversions {
    /// As decisions about one resource ask for them. None where all versions have the same fields.
    pub(crate) fn of<'a>(&'a self, resource: &'a Resource) -> Option<OfResource<'a>> {
        let versions = resource.versions.as_deref().filter(|versions| versions.definition.webhook.is_some())?;
        Some(OfResource { versions, conversions: self })
    }

    /// Whether the last decision lacked any, and so doesn't count.
    pub(crate) fn is_wanting(&self) -> bool {
        !self.0.lock().wanted.is_empty()
    }

    /// Makes those that are lacking. Whether there were any.
    pub(crate) async fn make(&self, server: &Arc<Inner>, resource: &Resource) -> Result<bool, Status> {
        let wanted = mem::take(&mut self.0.lock().wanted);
        let Some(versions) = resource.versions.as_ref().filter(|_| !wanted.is_empty()) else { return Ok(false) };
        for (version, objects) in wanted {
            let converted = versions.convert(server, objects.clone(), &version).await?;
            let known = objects.into_iter().zip(converted);
            let known = known.map(|(object, shown)| (object, version.clone(), Arc::new(shown)));
            self.0.lock().known.extend(known);
        }
        Ok(true)
    }
}

/// [`Conversions`] between the versions of one kind.
#[derive(Debug)]
pub(crate) struct OfResource<'a> {
    versions: &'a Versions,
    conversions: &'a Conversions,
}

impl apply::Versions for OfResource<'_> {
    fn convert(&self, object: &Value, api_version: &str) -> Converted<'_> {
        let Some(schema) = self.versions.schema(api_version) else { return Converted::NoVersion };
        if object["apiVersion"] == api_version {
            return Converted::Known(Arc::new(object.clone()), schema.node());
        }
        let mut state = self.conversions.0.lock();
        let known = state.known.iter().find(|(known, version, _)| version == api_version && known == object);
        if let Some((_, _, shown)) = known {
            return Converted::Known(shown.clone(), schema.node());
        }
        let wanted = state.wanted.entry(api_version.to_owned()).or_default();
        if !wanted.contains(object) {
            wanted.push(object.clone());
        }
        Converted::Unknown
    }
}
