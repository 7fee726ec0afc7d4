//! Requests to external plugins and their responses: phase 2 of kubebuilder's plugin protocol.
//!
//! A plugin is a program that reads one [`Request`] as JSON and prints one [`Response`]. It receives all files of the
//! project, and returns the files that it creates or changes. Its response becomes part of a [plan](crate::plan). The
//! rules are those of kubebuilder's `pkg/plugin/external` and `pkg/plugins/external`, and of Go's JSON decoder: keys
//! are case-insensitive, and `null` stands for an empty value.
//!
//! ```
//! use kubewright_scaffold::external::{PluginKey, Response};
//!
//! let key: PluginKey = "greet.example.com/v1".parse()?;
//! assert_eq!((key.name(), key.version()), ("greet.example.com", "v1"));
//! let response = Response::read(r#"{"universe": {"GREETING": "Ahoy\n"}, "flags": null}"#)?;
//! assert_eq!(response.universe["GREETING"], "Ahoy\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::{
    command::{DEPLOY_IMAGE, GRAFANA},
    name::NameError,
    project::LAYOUT,
};

/// The version of the protocol.
pub const API_VERSION: &str = "v1alpha1";

/// The key of a plugin in `--plugins` and in `PROJECT`: a DNS name and a version, such as `v1` or `v2-alpha`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PluginKey {
    name: String,
    version: String,
}

impl PluginKey {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the part of kubewright with this key, if it is one that is named as a plugin.
    pub fn feature(&self) -> Option<Feature> {
        let short = self.name.split('.').next()?;
        let feature = Feature::ALL.into_iter().find(|feature| feature.name() == short)?;
        let is_known = self.name == short || feature.key().strip_suffix(FEATURES) == Some(&format!("{}/", self.name));
        (is_known && self.version == FEATURES).then_some(feature)
    }

    /// Returns whether this is the layout of kubewright itself. As in kubebuilder, it may be abbreviated to the first
    /// part of its name.
    pub fn is_ours(&self) -> bool {
        LAYOUT.split_once('/').is_some_and(|(name, version)| {
            let short = name.split('.').next();
            self.version == version && (self.name == name || Some(self.name.as_str()) == short)
        })
    }
}

/// The version of kubewright's features.
const FEATURES: &str = "v1-alpha";

/// A part of kubewright that is named as a plugin, as in kubebuilder. Its version may be omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// `create api --plugins deploy-image`: a controller that runs an image.
    DeployImage,
    /// `edit --plugins grafana`: dashboards.
    Grafana,
}

impl Feature {
    const ALL: [Self; 2] = [Self::DeployImage, Self::Grafana];

    /// Returns the short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::DeployImage => "deploy-image",
            Self::Grafana => "grafana",
        }
    }

    /// Returns the key in `PROJECT`.
    pub fn key(self) -> &'static str {
        match self {
            Self::DeployImage => DEPLOY_IMAGE,
            Self::Grafana => GRAFANA,
        }
    }
}

impl fmt::Display for PluginKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.version)
    }
}

impl FromStr for PluginKey {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if let Some(feature) = Feature::ALL.into_iter().find(|feature| feature.name() == text) {
            return Ok(Self { name: feature.name().into(), version: FEATURES.into() });
        }
        match text.split_once('/') {
            Some((name, version)) if is_dns_name(name) && is_version(version) => {
                Ok(Self { name: name.into(), version: version.into() })
            }
            _ => Err(NameError::new(
                "plugin",
                text,
                "must be a lower-case name and a version, such as greet.example.com/v1",
            )),
        }
    }
}

/// Returns whether a name is an RFC 1123 subdomain. Such a name never leads out of a directory.
fn is_dns_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && is_edge(part.as_bytes().first())
            && is_edge(part.as_bytes().last())
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_version(text: &str) -> bool {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (number, stage) = text.split_once('-').unwrap_or((text, "alpha"));
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) && matches!(stage, "alpha" | "beta")
}

/// A request to a plugin.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Request<'a> {
    /// The version of the protocol.
    pub api_version: &'static str,
    /// The flags of the command line and their values. For `flags` and `metadata`, the command that the request is
    /// about: `--init`, `--api`, `--webhook` or `--edit`.
    pub args: &'a [String],
    /// The command: `init`, `create api`, `create webhook` or `edit`; or `flags` or `metadata`, which change nothing.
    pub command: &'a str,
    /// The files of the project by path, with the changes of the preceding plugins.
    pub universe: &'a BTreeMap<String, String>,
    /// All plugins of this command, in order.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub plugin_chain: &'a [String],
    /// The content of `PROJECT`; `None` for `init`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
}

impl<'a> Request<'a> {
    /// Creates a request without a project.
    pub fn new(command: &'a str, args: &'a [String], universe: &'a BTreeMap<String, String>) -> Self {
        Self { api_version: API_VERSION, args, command, universe, plugin_chain: &[], config: None }
    }
}

/// The response of a plugin. Missing fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Response {
    /// New and changed files by path. Unchanged files may be included. No files are deleted.
    #[serde(alias = "Universe", deserialize_with = "or_nothing")]
    pub universe: BTreeMap<String, String>,
    /// Whether the plugin failed.
    #[serde(alias = "Error", deserialize_with = "or_nothing")]
    pub error: bool,
    /// The reasons of the failure.
    #[serde(alias = "ErrorMsgs", alias = "errormsgs", deserialize_with = "or_nothing")]
    pub error_msgs: Vec<String>,
    /// The flags of the plugin for a command.
    #[serde(alias = "Flags", deserialize_with = "or_nothing")]
    pub flags: Vec<Flag>,
    /// The help of the plugin for a command.
    #[serde(alias = "Metadata", deserialize_with = "or_nothing")]
    pub metadata: Metadata,
}

/// A flag of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Flag {
    /// The name, without `--`.
    #[serde(alias = "Name", deserialize_with = "or_nothing")]
    pub name: String,
    /// The type: `bool`, `int` or `float`. Any other value means a string.
    #[serde(alias = "Type", deserialize_with = "or_nothing")]
    pub r#type: String,
    /// The default value.
    #[serde(alias = "Default", deserialize_with = "or_nothing")]
    pub default: String,
    /// The help text.
    #[serde(alias = "Usage", deserialize_with = "or_nothing")]
    pub usage: String,
}

/// The help of a plugin for a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Metadata {
    /// The description.
    #[serde(alias = "Description", deserialize_with = "or_nothing")]
    pub description: String,
    /// Examples of command lines.
    #[serde(alias = "Examples", deserialize_with = "or_nothing")]
    pub examples: String,
}

fn or_nothing<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// An invalid response, or a response that reports a failure.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ResponseError {
    /// Nothing was printed.
    #[error("the plugin printed nothing instead of a PluginResponse in JSON")]
    Nothing,
    /// The output is not a response.
    #[error(
        "the plugin printed {start:?}, which is not a PluginResponse in JSON ({why}): messages belong on standard error"
    )]
    Syntax {
        /// The start of the output.
        start: String,
        /// The syntax error.
        why: String,
    },
    /// The plugin reports a failure.
    #[error("the plugin failed: {}", if .0.is_empty() { "it gave no reason".to_owned() } else { .0.join("\n") })]
    Refused(Vec<String>),
}

impl Response {
    /// Parses the output of a plugin.
    ///
    /// # Errors
    /// Returns an error if the output is not a response, or reports a failure.
    pub fn read(printed: &str) -> Result<Self, ResponseError> {
        if printed.trim().is_empty() {
            return Err(ResponseError::Nothing);
        }
        // Parsed as a map first, since serde accepts a list for a struct.
        let map: Result<Map<String, Value>, _> = serde_json::from_str(printed);
        let response = map.and_then(|map| serde_json::from_value::<Self>(Value::Object(map))).map_err(|error| {
            let start = printed.trim().chars().take(60).collect();
            ResponseError::Syntax { start, why: error.to_string() }
        })?;
        if response.error {
            return Err(ResponseError::Refused(response.error_msgs));
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_names_with_versions() {
        for good in ["greet/v1", "greet.example.com/v2-alpha", "a/1", "rust.kubewright.dev/v1"] {
            assert_eq!(good.parse::<PluginKey>().unwrap().to_string(), good);
        }
        for bad in [
            "", "greet", "greet/", "/v1", "Greet/v1", "../x/v1", "a/../v1", "a/v1/b", "a..b/v1", "-a/v1", "a/v1-rc",
            "a/v",
        ] {
            assert!(bad.parse::<PluginKey>().is_err(), "{bad}");
        }
        let is_ours = |text: &str| text.parse::<PluginKey>().unwrap().is_ours();
        assert!(is_ours(LAYOUT) && is_ours("rust/v1") && !is_ours("rust/v2") && !is_ours("go/v4"));
    }

    #[test]
    fn a_request_has_kubebuilders_keys() {
        let (args, universe) = (["--domain".to_owned(), "a.b".to_owned()], BTreeMap::new());
        let mut request = Request::new("init", &args, &universe);
        let written = serde_json::to_string(&request).unwrap();
        assert_eq!(written, r#"{"apiVersion":"v1alpha1","args":["--domain","a.b"],"command":"init","universe":{}}"#);
        let chain = ["a/v1".to_owned()];
        request.plugin_chain = &chain;
        request.config = Some(Value::Null);
        assert!(serde_json::to_string(&request).unwrap().ends_with(r#""pluginChain":["a/v1"],"config":null}"#));
    }

    #[test]
    fn responses_written_by_go_are_parsed() {
        let read = |text: &str| Response::read(text).unwrap();
        let flags = r#"{"apiVersion":"v1alpha1","command":"flags","metadata":{"description":"","examples":""},"universe":null,
            "flags":[{"Name":"sail","Type":"bool","Default":"false","Usage":"Set sail."}]}"#;
        let flag =
            Flag { name: "sail".into(), r#type: "bool".into(), default: "false".into(), usage: "Set sail.".into() };
        assert_eq!(read(flags).flags, std::slice::from_ref(&flag));
        let lower = r#"{"flags":[{"name":"sail","type":"bool","default":"false","usage":"Set sail."}]}"#;
        assert_eq!(read(lower).flags, [flag]);
        assert_eq!(read(r#"{"error":false,"errorMsgs":null}"#), Response::default());
    }

    #[test]
    fn invalid_responses_are_errors() {
        let refused = |text: &str| Response::read(text).unwrap_err().to_string();
        assert!(refused(" \n").contains("printed nothing"));
        assert!(refused("Traceback (most recent call last)").contains("printed \"Traceback (most"));
        assert!(refused("{\"universe\": {\"a\": 1}}").contains("standard error"));
        assert!(refused("[]").contains("not a PluginResponse"));
        assert_eq!(
            refused(r#"{"error":true,"errorMsgs":["no wind","no crew"]}"#),
            "the plugin failed: no wind\nno crew"
        );
        assert_eq!(refused(r#"{"error":true}"#), "the plugin failed: it gave no reason");
    }
}
