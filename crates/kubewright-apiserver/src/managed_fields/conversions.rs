//! Conversions of objects to the versions in which other managers own fields of them.
//!
//! Ownership decisions don't wait, but a conversion may require a webhook call. So a decision records the conversions
//! that it lacks, and the caller converts and repeats the decision.

use std::{collections::BTreeMap, mem, sync::Arc};

use kubewright_apimachinery::{
    apply::{self, Converted},
    status::Status,
};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    conversion::Versions,
    registry::{BuiltinVersion, Resource},
    webhook_client::WebhookClient,
};

/// The conversions for the decisions of one request.
#[derive(Debug, Default)]
pub(crate) struct Conversions(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Objects, the version they were converted to, and the converted objects.
    known: Vec<(Value, String, Arc<Value>)>,
    /// The objects to convert, by version.
    missing: BTreeMap<String, Vec<Value>>,
}

impl Conversions {
    /// Creates the conversions of one resource. Returns `None` if its kind is built in.
    pub(crate) fn of<'a>(&'a self, resource: &'a Resource) -> Option<ResourceConversions<'a>> {
        let versions = resource.versions.as_deref()?;
        Some(ResourceConversions { versions, conversions: self })
    }

    /// Returns whether the last decision lacked conversions, and so is invalid.
    pub(crate) fn are_missing(&self) -> bool {
        !self.0.lock().missing.is_empty()
    }

    /// Makes the missing conversions. Returns whether there were any.
    pub(crate) async fn make(&self, client: &WebhookClient, resource: &Resource) -> Result<bool, Status> {
        let missing = mem::take(&mut self.0.lock().missing);
        let Some(versions) = resource.versions.as_ref().filter(|_| !missing.is_empty()) else { return Ok(false) };
        for (version, objects) in missing {
            let converted = versions.convert(client, objects.clone(), &version).await?;
            let known = objects.into_iter().zip(converted);
            let known = known.map(|(object, converted)| (object, version.clone(), Arc::new(converted)));
            self.0.lock().known.extend(known);
        }
        Ok(true)
    }
}

/// The conversions between the versions of a built-in kind, which its strategies make at once.
#[derive(Debug)]
pub(crate) struct BuiltinConversions<'a>(&'a [BuiltinVersion]);

impl<'a> BuiltinConversions<'a> {
    /// Creates the conversions of one resource; `None` if its kind is custom. If it has one version, all others are
    /// unknown.
    pub(crate) fn of(resource: &'a Resource) -> Option<Self> {
        (!resource.schema.custom).then(|| Self(&resource.builtin_versions))
    }

    fn find(&self, api_version: &str) -> Option<&'a BuiltinVersion> {
        self.0.iter().find(|version| version.api_version == api_version)
    }
}

impl apply::Versions for BuiltinConversions<'_> {
    fn has(&self, api_version: &str) -> bool {
        self.find(api_version).is_some()
    }

    fn convert(&self, object: &Value, api_version: &str) -> Converted<'_> {
        let Some(version) = self.find(api_version) else { return Converted::NoVersion };
        let mut object = object.clone();
        let own = object["apiVersion"].as_str().unwrap_or_default();
        if let Some(from) = self.find(own).filter(|from| from.api_version != api_version) {
            from.strategy.decode(&mut object);
            version.strategy.encode(&mut object);
            object["apiVersion"] = api_version.into();
            if let Some(ty) = version.schema.served {
                ty.complete(&mut object);
            }
        }
        Converted::Known(Arc::new(object), version.schema.node())
    }
}

/// [`Conversions`] between the versions of one kind.
#[derive(Debug)]
pub(crate) struct ResourceConversions<'a> {
    versions: &'a Versions,
    conversions: &'a Conversions,
}

impl apply::Versions for ResourceConversions<'_> {
    fn has(&self, api_version: &str) -> bool {
        self.versions.schema(api_version).is_some()
    }

    fn convert(&self, object: &Value, api_version: &str) -> Converted<'_> {
        let Some(schema) = self.versions.schema(api_version) else { return Converted::NoVersion };
        if object["apiVersion"] == api_version {
            return Converted::Known(Arc::new(object.clone()), schema.node());
        }
        if !self.versions.has_webhook() {
            let mut object = object.clone();
            object["apiVersion"] = api_version.into();
            return Converted::Known(Arc::new(object), schema.node());
        }
        let mut state = self.conversions.0.lock();
        let known = state.known.iter().find(|(known, version, _)| version == api_version && known == object);
        if let Some((_, _, converted)) = known {
            return Converted::Known(converted.clone(), schema.node());
        }
        let missing = state.missing.entry(api_version.to_owned()).or_default();
        if !missing.contains(object) {
            missing.push(object.clone());
        }
        Converted::Unknown
    }
}
