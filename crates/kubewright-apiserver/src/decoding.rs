//! Decoding of objects by their kind. Objects of built-in kinds pass through their Go types, those of custom kinds are
//! pruned by their schema.

use kubewright_apimachinery::{decode::untyped_numbers, status::Status, types::Decoded};
use serde_json::Value;

use crate::{embedded, registry::Resource, schema_rules};

/// Rewrites a sent object as its kind stores it. Removes and reports the fields that it doesn't declare. `text` is the
/// JSON text of the object, if it was sent as such.
///
/// # Errors
/// Returns 400 for a value of a wrong type: anywhere in a built-in object, in the metadata of a custom one and of the
/// resources embedded in it.
pub(crate) fn decode(resource: &Resource, object: &mut Value, text: Option<&[u8]>) -> Result<Decoded, Status> {
    match resource.schema.served {
        Some(ty) => match ty.decode_text(object, text) {
            Ok(decoded) => Ok(decoded),
            Err(why) => Err(schema_rules::unreadable(resource, &why)),
        },
        None => {
            untyped_numbers(object);
            let found = embedded::decode(resource.schema.node(), object);
            let embedded::Unknown { own, embedded } = found.map_err(|why| schema_rules::unreadable(resource, &why))?;
            let mut decoded = Decoded::default();
            decoded.unknown = [own, schema_rules::prune(resource, object), embedded].concat();
            Ok(decoded)
        }
    }
}

/// Adds the fields that Go always writes to an object of a built-in kind in its stored form.
pub(crate) fn complete(resource: &Resource, object: &mut Value) {
    if let Some(ty) = resource.schema.stored {
        ty.complete(object);
    }
}

/// Like [`complete`], for an object that is about to be stored, in which empty lists and maps become null.
pub(crate) fn complete_stored(resource: &Resource, object: &mut Value) {
    if let Some(ty) = resource.schema.stored {
        ty.complete_stored(object);
    }
}
