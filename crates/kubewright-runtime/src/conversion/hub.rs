//! The hub with its spokes, and the way of an object through it.

use std::{fmt, marker::PhantomData};

use kube::ResourceExt;
use serde_json::Value;

use super::{ConversionError, Convertible};
use crate::object::{KindName, Object};

/// A kind whose objects are converted: `K` is the version in the middle.
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
    /// A hub without spokes.
    pub fn new() -> Self {
        Self { spokes: Vec::new() }
    }

    /// One more version.
    pub fn spoke<S: Convertible<Hub = K>>(mut self) -> Self {
        self.spokes.push(Box::new(Of::<S>(PhantomData)));
        self
    }
}

/// What a manager converts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConversionDescription {
    /// The hub.
    pub hub: KindName,
    /// The versions of its spokes, in the order in which they were added.
    pub spokes: Vec<String>,
}

impl ConversionDescription {
    /// The name of the definition: `cronjobs.batch.tutorial.kubebuilder.io`.
    pub fn definition(&self) -> String {
        format!("{}.{}", self.hub.plural, self.hub.group)
    }
}

/// A spoke without its type.
trait Spoke<K>: Send + Sync {
    fn name(&self) -> KindName;
    fn to_hub(&self, object: Value) -> Result<K, ConversionError>;
    fn of_hub(&self, hub: K) -> Result<Value, ConversionError>;
}

struct Of<S>(PhantomData<fn() -> S>);

impl<S: Convertible> Spoke<S::Hub> for Of<S> {
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

/// A hub without its type.
pub(crate) trait AnyHub: fmt::Debug + Send + Sync {
    fn describe(&self) -> ConversionDescription;

    /// An object of this kind in the version that `to` (`group/version`) says.
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
            found.ok_or_else(|| ConversionError::new(format!("there is no conversion for version {version}")))
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
        ConversionError::new(format!("it can't be read as a {kind} of {version}: {error}"))
    })
}

/// Which object it is.
fn identity<K: Object>(object: &K) -> [Option<String>; 3] {
    [object.meta().name.clone(), object.namespace(), object.uid()]
}

/// Without its metadata an object would lose its labels, too, so this is told before the API server tells less.
fn same<K: Object>(id: &[Option<String>; 3], object: &K) -> Result<(), ConversionError> {
    if *id == identity(object) {
        return Ok(());
    }
    Err(ConversionError::new("the conversion made another object of it: it must move `metadata` over"))
}
