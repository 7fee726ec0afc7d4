//! The conversion settings of CustomResourceDefinitions.

use std::collections::BTreeSet;

use kubewright_apimachinery::description::Conversion;
use serde_json::Value;
use thiserror::Error;

/// A mismatch of converted and registered versions.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConversionError {
    /// A converted version is not registered.
    #[error(
        "the operator converts {kind} of {group}/{version} but does not register it: add .kind::<{version}::{kind}>() where the \
         manager is made if that version is stored, else .version::<{version}::{kind}>()"
    )]
    NotBrought {
        /// The kind.
        kind: String,
        /// The group.
        group: String,
        /// The version.
        version: String,
    },
    /// A registered version is not converted.
    #[error(
        "the operator registers {kind} of {group}/{version} but converts only other versions, so its objects could not be read: \
         add .spoke::<{version}::{kind}>() to its Hub"
    )]
    NotConverted {
        /// The kind.
        kind: String,
        /// The group.
        group: String,
        /// The version.
        version: String,
    },
}

/// Adds the conversion to each definition.
///
/// # Errors
/// Returns an error if the converted versions are not the registered ones.
pub fn add(definitions: &mut [Value], conversions: &[Conversion]) -> Result<(), ConversionError> {
    for conversion in conversions {
        let Conversion { group, kind, versions: converted, spec, .. } = conversion;
        let is_it = |definition: &&mut Value| {
            let spec = &definition["spec"];
            spec["group"] == **group && spec["names"]["kind"] == **kind
        };
        let definition = definitions.iter_mut().find(is_it);
        let brought = definition.as_deref().map(names).unwrap_or_default();
        let converted: BTreeSet<_> = converted.iter().cloned().collect();
        let (kind, group) = (kind.clone(), group.clone());
        if let Some(version) = converted.difference(&brought).next().cloned() {
            return Err(ConversionError::NotBrought { kind, group, version });
        }
        if let Some(version) = brought.difference(&converted).next().cloned() {
            return Err(ConversionError::NotConverted { kind, group, version });
        }
        if let Some(definition) = definition {
            definition["spec"]["conversion"] = spec.clone();
        }
    }
    Ok(())
}

/// Returns the version names of a definition.
fn names(definition: &Value) -> BTreeSet<String> {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    versions.filter_map(|version| version["name"].as_str()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a definition of cows with versions and conversions.
    fn added(brought: &[&str], converted: &[&str]) -> Result<Value, String> {
        let versions: Vec<_> = brought.iter().map(|version| json!({"name": version})).collect();
        let cows = json!({"spec": {"group": "my.domain", "names": {"kind": "Cow"}, "versions": versions}});
        let mut definitions = [json!({"spec": {"group": "my.domain", "names": {"kind": "Pig"}}}), cows];
        let converted = converted.iter().map(|&version| version.to_owned()).collect();
        let conversion = Conversion::new("my.domain".into(), "Cow".into(), converted, json!({"strategy": "Webhook"}));
        add(&mut definitions, &[conversion]).map_err(|error| error.to_string())?;
        assert_eq!(definitions[0]["spec"]["conversion"], Value::Null, "the other kind is left alone");
        Ok(definitions[1].take())
    }

    #[test]
    fn definitions_have_the_conversion_of_their_kind() {
        assert_eq!(added(&["v1", "v2"], &["v2", "v1"]).unwrap()["spec"]["conversion"]["strategy"], "Webhook");
    }

    #[test]
    fn converted_and_registered_versions_must_match() {
        let missing = added(&["v1"], &["v1", "v2"]).unwrap_err();
        assert!(
            missing.contains("converts Cow of my.domain/v2") && missing.contains(".version::<v2::Cow>()"),
            "{missing}"
        );
        let unread = added(&["v1", "v2", "v3"], &["v1", "v2"]).unwrap_err();
        assert!(unread.contains("registers Cow of my.domain/v3") && unread.contains(".spoke::<v3::Cow>()"), "{unread}");
        assert!(added(&[], &["v1"]).unwrap_err().contains(".kind::<v1::Cow>()"));
    }
}
