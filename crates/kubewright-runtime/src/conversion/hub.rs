//! A hub with its spokes, which converts objects between them.

use std::{fmt, marker::PhantomData};

use kube::ResourceExt;
use serde_json::Value;

use super::{ConversionError, Convertible};
use crate::object::{KindName, Object};

/// The conversion of a kind: `K` is the hub version.
pub struct Hub<K: Object> {
    spokes: Vec<Box<dyn Spoke<K>>>,
}

impl<K: Object> fmt::Debug for Hub<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe().fmt(f)
    }
}

impl<K: Object> Default for Hub<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Object> Hub<K> {
    /// Creates a hub without spokes.
    pub fn new() -> Self {
        Self { spokes: Vec::new() }
    }

    /// Adds a version.
    pub fn spoke<S: Convertible<Hub = K>>(mut self) -> Self {
        self.spokes.push(Box::new(SpokeOf::<S>(PhantomData)));
        self
    }
}

/// The description of a conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConversionDescription {
    /// The hub.
    pub hub: KindName,
    /// The versions of its spokes, in the order in which they were added.
    pub spokes: Vec<String>,
}

impl ConversionDescription {
    /// Returns the name of the CustomResourceDefinition: `cronjobs.batch.tutorial.kubebuilder.io`.
    pub fn definition(&self) -> String {
        format!("{}.{}", self.hub.plural, self.hub.group)
    }
}

/// A type-erased spoke.
trait Spoke<K>: Send + Sync {
    fn name(&self) -> KindName;
    fn to_hub(&self, object: Value) -> Result<K, ConversionError>;
    fn of_hub(&self, hub: K) -> Result<Value, ConversionError>;
}

struct SpokeOf<S>(PhantomData<fn() -> S>);

impl<S: Convertible> Spoke<S::Hub> for SpokeOf<S> {
    fn name(&self) -> KindName {
        KindName::of::<S>()
    }

    fn to_hub(&self, object: Value) -> Result<S::Hub, ConversionError> {
        let spoke: S = read(object)?;
        let id = identity(&spoke);
        let hub = spoke.convert_to()?;
        same(&id, &hub)?;
        Ok(hub)
    }

    fn of_hub(&self, hub: S::Hub) -> Result<Value, ConversionError> {
        let id = identity(&hub);
        let spoke = S::convert_from(hub)?;
        same(&id, &spoke)?;
        Ok(serde_json::to_value(spoke)?)
    }
}

/// A type-erased hub.
pub(crate) trait AnyHub: fmt::Debug + Send + Sync {
    fn describe(&self) -> ConversionDescription;

    /// Converts an object of this kind to the version `to` (`group/version`).
    fn convert(&self, object: Value, to: &str) -> Result<Value, ConversionError>;
}

impl<K: Object> AnyHub for Hub<K> {
    fn describe(&self) -> ConversionDescription {
        let spokes = self.spokes.iter().map(|spoke| spoke.name().version).collect();
        ConversionDescription { hub: KindName::of::<K>(), spokes }
    }

    fn convert(&self, object: Value, to: &str) -> Result<Value, ConversionError> {
        let own = KindName::of::<K>().api_version();
        let spoke = |version: &str| {
            let found = self.spokes.iter().find(|spoke| spoke.name().api_version() == version);
            found.ok_or_else(|| ConversionError::new(format!("no conversion for version {version}")))
        };
        let from = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        if from == to {
            return Ok(object);
        }
        let hub = if from == own { read(object)? } else { spoke(&from)?.to_hub(object)? };
        if to == own { Ok(serde_json::to_value(hub)?) } else { spoke(to)?.of_hub(hub) }
    }
}

fn read<K: Object>(object: Value) -> Result<K, ConversionError> {
    serde_json::from_value(object).map_err(|error| {
        let KindName { version, kind, .. } = KindName::of::<K>();
        ConversionError::new(format!("can't decode {kind} of {version}: {error}"))
    })
}

/// The identity of the object.
fn identity<K: Object>(object: &K) -> [Option<String>; 3] {
    [object.meta().name.clone(), object.namespace(), object.uid()]
}

/// Checks that a conversion keeps the metadata. The API server's error would say less.
fn same<K: Object>(id: &[Option<String>; 3], object: &K) -> Result<(), ConversionError> {
    if *id == identity(object) {
        return Ok(());
    }
    Err(ConversionError::new("the conversion made another object of it: it must move `metadata` over"))
}
