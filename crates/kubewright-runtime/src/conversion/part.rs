//! Parts of objects, such as specs, whose conversion is derived.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{ConversionError, keep, take};

/// A part of an object, such as its spec, that is converted to the hub's part and from it. Derive it
/// (`kubewright::conversion::Convert`), or implement it for a part that the derive can't describe.
pub trait Convert: Sized + Serialize + DeserializeOwned {
    /// The hub's part.
    type Hub: Serialize + DeserializeOwned;

    /// Converts this part to the hub's version.
    ///
    /// # Errors
    /// As [`Convertible::convert_to`](super::Convertible::convert_to).
    fn into_hub(self, data: &mut Data) -> Result<Self::Hub, ConversionError>;

    /// Converts the hub's part to this version.
    ///
    /// # Errors
    /// As [`Convertible::convert_from`](super::Convertible::convert_from).
    fn from_hub(hub: Self::Hub, data: &mut Data) -> Result<Self, ConversionError>;
}

impl<C: Convert> Convert for Option<C> {
    type Hub = Option<C::Hub>;

    fn into_hub(self, data: &mut Data) -> Result<Self::Hub, ConversionError> {
        self.map(|part| part.into_hub(data)).transpose()
    }

    fn from_hub(hub: Self::Hub, data: &mut Data) -> Result<Self, ConversionError> {
        hub.map(|part| C::from_hub(part, data)).transpose()
    }
}

/// Data of an item is kept by its index, so it is lost or misattributed if the list changes in the other version.
impl<C: Convert> Convert for Vec<C> {
    type Hub = Vec<C::Hub>;

    fn into_hub(self, data: &mut Data) -> Result<Self::Hub, ConversionError> {
        let items = self.into_iter().enumerate();
        items.map(|(place, item)| data.within(&place.to_string(), |data| item.into_hub(data))).collect()
    }

    fn from_hub(hub: Self::Hub, data: &mut Data) -> Result<Self, ConversionError> {
        let items = hub.into_iter().enumerate();
        items.map(|(place, item)| data.within(&place.to_string(), |data| C::from_hub(item, data))).collect()
    }
}

/// Data that only one of two versions can represent, by field: taken from the converted object, kept in the result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Data {
    taken: Map<String, Value>,
    kept: Map<String, Value>,
}

impl Data {
    /// Takes the data kept for the version `to`.
    pub fn open(metadata: &mut ObjectMeta, to: &str) -> Self {
        Self { taken: take(metadata, to).unwrap_or_default(), kept: Map::new() }
    }

    /// Keeps the data that only the version `from` can represent.
    ///
    /// # Errors
    /// As [`keep`].
    pub fn close(self, metadata: &mut ObjectMeta, from: &str) -> Result<(), ConversionError> {
        if self.kept.is_empty() { Ok(()) } else { keep(metadata, from, &self.kept) }
    }

    /// Returns the kept value of a field.
    pub fn take<T: DeserializeOwned>(&mut self, field: &str) -> Option<T> {
        serde_json::from_value(self.taken.remove(field)?).ok()
    }

    /// Keeps a field, unless it has its default value.
    ///
    /// # Errors
    /// If it can't be serialized as JSON.
    pub fn keep<T: Serialize>(&mut self, field: &str, value: &T, without: &T) -> Result<(), ConversionError> {
        let value = serde_json::to_value(value)?;
        if value != serde_json::to_value(without)? {
            self.kept.insert(field.to_owned(), value);
        }
        Ok(())
    }

    /// Converts a nested part, whose fields are kept below this one.
    ///
    /// # Errors
    /// Those of the conversion, prefixed with the name of the field.
    pub fn within<T>(
        &mut self,
        field: &str,
        convert: impl FnOnce(&mut Self) -> Result<T, ConversionError>,
    ) -> Result<T, ConversionError> {
        let mut inner = Self { taken: self.take(field).unwrap_or_default(), kept: Map::new() };
        let converted = convert(&mut inner).map_err(|error| error.of(field))?;
        if !inner.kept.is_empty() {
            self.kept.insert(field.to_owned(), Value::Object(inner.kept));
        }
        Ok(converted)
    }

    /// Reverses the direction: kept data can be taken.
    pub(super) fn turned(self) -> Self {
        Self { taken: self.kept, kept: Map::new() }
    }
}

impl ConversionError {
    /// Prefixes the error with a field.
    #[must_use]
    pub fn of(self, field: &str) -> Self {
        Self::new(format_args!("{field}: {self}"))
    }
}

/// The default of a field's type; the function only names the field. Derived code uses it where it can't name the type.
#[doc(hidden)]
pub fn default_of<H, T: Default>(_field: impl Fn(&H) -> &T) -> T {
    T::default()
}
