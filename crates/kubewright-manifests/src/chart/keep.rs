//! Values that were edited.

use kubewright_apimachinery::decode::yaml_file;
use serde_json::{Map, Value};
use thiserror::Error;

use super::VALUES;
use crate::yaml::{self, YamlError};

/// Values that cannot be kept.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeepError {
    /// The file is not a map of values.
    #[error("{path} is not a map of values: {why}; fix it, or use --force to overwrite it")]
    Syntax {
        /// The file.
        path: String,
        /// The reason.
        why: String,
    },
    /// The values cannot be written.
    #[error(transparent)]
    Yaml(#[from] YamlError),
}

/// Returns the values of a chart that was edited: its own, and the new ones that it does not have. Its text stays as it
/// is, with its comments, unless values have to be added.
///
/// `image` is an image that was asked for, which replaces that of the file.
///
/// # Errors
/// Returns an error if the file is not a map.
pub fn keep(path: &str, edited: &str, new: &str, with_image: bool) -> Result<String, KeepError> {
    let read = |text: &str| {
        let syntax = |why: String| KeepError::Syntax { path: path.into(), why };
        let value = yaml_file(text).map_err(|error| syntax(error.to_string()))?;
        match value {
            Value::Object(map) => Ok(map),
            Value::Null => Ok(Map::new()),
            _ => Err(syntax("it is another value".into())),
        }
    };
    let (before, new) = (read(edited)?, read(new)?);
    let mut after = before.clone();
    add(&mut after, &new);
    if with_image
        && let (Some(image), Some(Value::Object(manager))) =
            (new.get("manager").and_then(|new| new.get("image")), after.get_mut("manager"))
    {
        for part in ["repository", "tag"] {
            manager["image"][part] = image[part].clone();
        }
    }
    if after == before {
        return Ok(edited.to_owned());
    }
    Ok(format!("{VALUES}{}", yaml::documents([&Value::Object(after)])?))
}

/// Adds missing values. Lists and texts are kept whole.
fn add(there: &mut Map<String, Value>, new: &Map<String, Value>) {
    for (name, value) in new {
        match (there.get_mut(name), value) {
            (None | Some(Value::Null), _) => drop(there.insert(name.clone(), value.clone())),
            // An emptied map stays empty, as one of limits.
            (Some(Value::Object(there)), Value::Object(new)) if !there.is_empty() && !is_whole(name) => add(there, new),
            _ => {}
        }
    }
}

/// Returns whether a value is one to replace as a whole.
fn is_whole(name: &str) -> bool {
    ["resources", "securityContext", "podSecurityContext", "nodeSelector", "affinity"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "manager: {replicas: 1, image: {repository: cow, tag: v2}, resources: {limits: {cpu: 1}}}\nmetrics: {enable: true, port: 8443}\n";

    #[test]
    fn edited_values_are_kept_and_new_ones_added() {
        let whole = "# Mine.\nmanager: {replicas: 3, image: {repository: moo, tag: v1}, resources: {}}\nmetrics: {enable: false, port: 1}\n";
        assert_eq!(keep("values.yaml", whole, NEW, false).unwrap(), whole);
        let part =
            "manager: {replicas: 3, image: {repository: moo, tag: v1}, resources: {requests: {cpu: 2}}}\nmine: 1\n";
        let kept = keep("values.yaml", part, NEW, false).unwrap();
        let kept = yaml_file(&kept).unwrap();
        assert_eq!(kept["manager"], yaml_file(part).unwrap()["manager"]);
        assert_eq!((&kept["mine"], &kept["metrics"]["port"]), (&1.into(), &8443.into()));
        let image = yaml_file(&keep("values.yaml", whole, NEW, true).unwrap()).unwrap();
        assert_eq!(image["manager"]["image"], serde_json::json!({"repository": "cow", "tag": "v2"}));
        assert_eq!(image["manager"]["replicas"], 3);
        assert_eq!(yaml_file(&keep("values.yaml", "", NEW, false).unwrap()).unwrap(), yaml_file(NEW).unwrap());
    }

    #[test]
    fn values_that_are_no_map_are_an_error() {
        for text in ["- 1\n", "a: [\n"] {
            let error = keep("dist/chart/values.yaml", text, NEW, false).unwrap_err().to_string();
            assert!(error.starts_with("dist/chart/values.yaml is not a map of values"), "{error}");
        }
    }
}
