//! The configuration of the plugin PodSecurity: the levels of namespaces without labels, and exemptions
//! (<https://kubernetes.io/docs/tasks/configure-pod-container/enforce-standards-admission-controller/>).

use std::collections::BTreeSet;

use kubewright_apimachinery::{
    name::{dns1123_label, dns1123_subdomain},
    status::{Cause, aggregate},
};
use serde::Deserialize;
use serde_json::Value;

use super::policy::{Level, LevelVersion, MALFORMED_LEVEL, MALFORMED_VERSION, Policy, Version};
use crate::fields::text;

const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
const GROUP: &str = "pod-security.admission.config.k8s.io";
const KIND: &str = "PodSecurityConfiguration";

/// The configuration of the admission plugin `PodSecurity`: what namespaces without labels ask for, and what isn't
/// checked. By default, nothing is asked for.
#[derive(Clone, Debug, Default)]
pub struct PodSecurityConfig {
    pub(crate) defaults: Policy,
    users: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    runtime_classes: BTreeSet<String>,
}

/// The error about a configuration of `PodSecurity` that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PodSecurityConfigError {
    /// The value is no configuration.
    #[error("read the configuration of PodSecurity: {0}")]
    Malformed(String),
    /// Fields have values that Kubernetes refuses, in its words.
    #[error("PodSecurity {0}")]
    Invalid(String),
}

/// What isn't checked, as in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exemption {
    Namespace,
    User,
    RuntimeClass,
}

impl Exemption {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::User => "user",
            Self::RuntimeClass => "runtimeClass",
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    #[serde(default)]
    defaults: Defaults,
    #[serde(default)]
    exemptions: Exemptions,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
struct Defaults {
    enforce: String,
    enforce_version: String,
    audit: String,
    audit_version: String,
    warn: String,
    warn_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Exemptions {
    usernames: Vec<String>,
    namespaces: Vec<String>,
    runtime_classes: Vec<String>,
}

impl PodSecurityConfig {
    /// Reads a configuration, an object of the kind `PodSecurityConfiguration` of
    /// `pod-security.admission.config.k8s.io/v1`, `v1beta1` or `v1alpha1`.
    ///
    /// # Errors
    /// If it is another object, has unknown fields, or values that Kubernetes refuses.
    pub fn from_value(config: Value) -> Result<Self, PodSecurityConfigError> {
        let malformed = PodSecurityConfigError::Malformed;
        let Document { api_version, kind, defaults, exemptions } =
            serde_json::from_value(config).map_err(|error| malformed(error.to_string()))?;
        let is_known = api_version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
        if kind != KIND || !is_known.is_some_and(|version| VERSIONS.contains(&version)) {
            return Err(malformed(format!("it is of {api_version}, kind {kind}, instead of {GROUP}/v1, kind {KIND}")));
        }
        let mut errors = Vec::new();
        let mut level = |mode: &str, level: &str, version: &str| {
            let mut invalid = |field: &str, why: &str| errors.push(format!("{field}: {why}"));
            let wanted = if level.is_empty() { Some(Level::Privileged) } else { Level::parse(level) };
            let level = wanted.unwrap_or_else(|| {
                invalid(mode, MALFORMED_LEVEL);
                Level::Restricted
            });
            let wanted = if version.is_empty() { Some(Version::Latest) } else { Version::parse(version) };
            let version = wanted.unwrap_or_else(|| {
                invalid(&format!("{mode}-version"), MALFORMED_VERSION);
                Version::Latest
            });
            LevelVersion { level, version }
        };
        let enforce = level("enforce", &defaults.enforce, &defaults.enforce_version);
        let audit = level("audit", &defaults.audit, &defaults.audit_version);
        let warn = level("warn", &defaults.warn, &defaults.warn_version);
        finish("configuration error", &errors)?;
        let Exemptions { usernames, namespaces, runtime_classes } = exemptions;
        let named = |name: &str| if name.is_empty() { vec!["username must not be empty".into()] } else { Vec::new() };
        let config = Self {
            defaults: Policy { enforce, audit, warn },
            namespaces: exempt("namespaces", namespaces, dns1123_label, &mut errors),
            runtime_classes: exempt("runtimeClasses", runtime_classes, dns1123_subdomain, &mut errors),
            users: exempt("usernames", usernames, named, &mut errors),
        };
        finish("invalid", &errors).map(|()| config)
    }

    /// Returns why the pods in a namespace aren't checked for a user.
    pub(crate) fn exemption(&self, namespace: &str, user: &str) -> Option<Exemption> {
        if self.is_exempt_namespace(namespace) {
            return Some(Exemption::Namespace);
        }
        self.users.contains(user).then_some(Exemption::User)
    }

    /// Returns whether the pods in a namespace aren't checked.
    pub(crate) fn is_exempt_namespace(&self, name: &str) -> bool {
        self.namespaces.contains(name)
    }

    /// Returns whether a pod or a template of pods isn't checked.
    pub(crate) fn is_exempt_pod(&self, pod: &Value) -> bool {
        self.runtime_classes.contains(text(pod, "/spec/runtimeClassName"))
    }
}

/// Returns an error with all of these, if there is one.
fn finish(what: &str, errors: &[String]) -> Result<(), PodSecurityConfigError> {
    match aggregate(errors) {
        None => Ok(()),
        Some(errors) => Err(PodSecurityConfigError::Invalid(format!("{what}: {errors}"))),
    }
}

/// Returns the names of an exemption, and adds the errors about them.
fn exempt(
    field: &str,
    names: Vec<String>,
    check: impl Fn(&str) -> Vec<String>,
    errors: &mut Vec<String>,
) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for (index, name) in names.into_iter().enumerate() {
        let path = format!("exemptions.{field}[{index}]");
        let wrong = check(&name);
        if !wrong.is_empty() {
            errors.push(Cause::invalid(path, &name.into(), &wrong.join(", ")).to_string());
        } else if known.contains(&name) {
            errors.push(Cause::duplicate(path, &name.into()).to_string());
        } else {
            known.insert(name);
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(fields: &Value) -> Result<PodSecurityConfig, String> {
        let mut config = json!({"apiVersion": format!("{GROUP}/v1"), "kind": KIND});
        for (name, field) in fields.as_object().unwrap() {
            config[name] = field.clone();
        }
        PodSecurityConfig::from_value(config).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_and_exemptions_are_read() {
        let config = read(&json!({
            "defaults": {"enforce": "baseline", "enforce-version": "v1.30", "warn": "restricted"},
            "exemptions": {"usernames": ["robot"], "namespaces": ["n"], "runtimeClasses": ["vm"]},
        }));
        let config = config.unwrap();
        let shown = |level: LevelVersion| level.to_string();
        let Policy { enforce, audit, warn } = config.defaults;
        assert_eq!([enforce, audit, warn].map(shown), ["baseline:v1.30", "privileged:latest", "restricted:latest"]);
        assert_eq!(config.exemption("n", "robot"), Some(Exemption::Namespace));
        assert_eq!(config.exemption("m", "robot"), Some(Exemption::User));
        assert_eq!(config.exemption("m", "ann"), None);
        assert!(config.is_exempt_pod(&json!({"spec": {"runtimeClassName": "vm"}})));
        assert!(!config.is_exempt_pod(&json!({"spec": {}})));
        let (policy, _) = Policy::read(&json!({}), &config.defaults);
        assert_eq!(policy, config.defaults);
    }

    /// The errors are those of kube-apiserver 1.36.3.
    #[test]
    fn wrong_values_are_errors() {
        let levels = "must be one of privileged, baseline, restricted";
        let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                     validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
        let error = |fields: Value| read(&fields).unwrap_err();
        let defaults = json!({"enforce": "x", "enforce-version": "v2", "warn": "w", "audit-version": "q"});
        let version = "must be \"latest\" or \"v1.x\"";
        let expect = format!(
            "PodSecurity configuration error: [enforce: {levels}, enforce-version: {version}, audit-version: {version}, \
             warn: {levels}]"
        );
        assert_eq!(error(json!({"defaults": defaults, "exemptions": {"usernames": [""]}})), expect);
        let expect = [
            format!("exemptions.namespaces[0]: Invalid value: \"A_\": {label}"),
            "exemptions.namespaces[2]: Duplicate value: \"a\"".into(),
            "exemptions.runtimeClasses[1]: Duplicate value: \"b\"".into(),
            "exemptions.usernames[0]: Invalid value: \"\": username must not be empty".into(),
            "exemptions.usernames[2]: Duplicate value: \"c\"".into(),
        ];
        let errors = error(json!({"exemptions": {
            "usernames": ["", "c", "c"], "namespaces": ["A_", "a", "a"], "runtimeClasses": ["b", "b"],
        }}));
        assert_eq!(errors, format!("PodSecurity invalid: [{}]", expect.join(", ")));
        assert!(read(&json!({"nope": 1})).unwrap_err().contains("unknown field `nope`"));
        assert!(read(&json!({"kind": "Pod"})).unwrap_err().contains("kind Pod, instead of"));
    }
}
