//! The ConfigMap with the texts of the page. Only the texts are kept in memory.

use std::borrow::Cow;

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize};

/// The maximum length of a title or greeting in bytes. No program could be started with more than about 128 KiB.
pub(crate) const LONGEST: usize = 1024;

/// A ConfigMap without the data that this operator doesn't need, which may be up to a megabyte.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConfigMap {
    metadata: ObjectMeta,
    #[serde(default)]
    data: Option<Texts>,
}

/// The texts of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Texts {
    #[serde(default, deserialize_with = "beginning")]
    pub(crate) title: Option<String>,
    #[serde(default, deserialize_with = "beginning")]
    pub(crate) greeting: Option<String>,
}

/// Truncates a text to a length that still shows that it is too long.
fn beginning<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let mut text = Option::<String>::deserialize(deserializer)?;
    if let Some(text) = text.as_mut().filter(|text| text.len() > LONGEST) {
        text.truncate(text.ceil_char_boundary(LONGEST + 1));
        text.shrink_to_fit();
    }
    Ok(text)
}

/// The state of a Guestbook's texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Config {
    /// The ConfigMap doesn't exist.
    Missing,
    /// The value of this key is invalid, with the reason.
    Invalid(&'static str),
    /// The texts. Missing texts have defaults.
    Found(Texts),
}

impl Config {
    pub(crate) fn of(config_map: Option<&ConfigMap>) -> Self {
        let Some(config_map) = config_map else { return Self::Missing };
        let texts = config_map.data.clone().unwrap_or_default();
        let is_too_long = |text: &Option<String>| text.as_ref().is_some_and(|text| text.len() > LONGEST);
        match (is_too_long(&texts.title), is_too_long(&texts.greeting)) {
            (true, _) => Self::Invalid("title"),
            (_, true) => Self::Invalid("greeting"),
            _ => Self::Found(texts),
        }
    }
}

impl Resource for ConfigMap {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "ConfigMap".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "configmaps".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config(data: Value) -> Config {
        let config_map = json!({"metadata": {"name": "myconfig"}, "data": data, "binaryData": {"title": "/w=="}});
        Config::of(Some(&serde_json::from_value(config_map).unwrap()))
    }

    fn texts(title: Option<&str>, greeting: Option<&str>) -> Config {
        Config::Found(Texts { title: title.map(str::to_owned), greeting: greeting.map(str::to_owned) })
    }

    #[test]
    fn only_the_texts_are_kept() {
        assert_eq!(Config::of(None), Config::Missing);
        assert_eq!(config(Value::Null), texts(None, None));
        assert_eq!(config(json!({"title": "Us", "other": "x".repeat(1_000_000)})), texts(Some("Us"), None));
        assert_eq!(config(json!({"title": "", "greeting": "Hi"})), texts(Some(""), Some("Hi")));
    }

    #[test]
    fn a_text_that_no_program_could_take_is_invalid_and_not_kept() {
        let fits = "ü".repeat(LONGEST / 2);
        assert_eq!(config(json!({"title": fits})), texts(Some(&fits), None));
        assert_eq!(config(json!({"title": "ü".repeat(500_000)})), Config::Invalid("title"));
        assert_eq!(config(json!({"greeting": "x".repeat(LONGEST + 1)})), Config::Invalid("greeting"));
        let long: ConfigMap =
            serde_json::from_value(json!({"metadata": {}, "data": {"title": "ü".repeat(500_000)}})).unwrap();
        assert!(long.data.unwrap().title.unwrap().capacity() <= LONGEST + 4);
    }
}
