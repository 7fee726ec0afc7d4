//! A container's environment variables, their sources, and their expansion in `command` and `args`.
//!
//! Pure: the caller fetches the referenced objects first ([`references`]), and passes them in.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, FileKeySelector, Pod};

use super::{
    env_file::{self, EnvFiles, Malformed},
    object::Capacity,
    resource,
};

/// An object of the pod's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reference {
    /// A ConfigMap, by name.
    ConfigMap(String),
    /// A Secret, by name.
    Secret(String),
    /// The persistent volume of a claim, by the claim's name.
    Claim(String),
}

/// The data of the referenced objects.
pub(crate) type ReferencedData = BTreeMap<Reference, BTreeMap<String, String>>;

/// An error that prevents a container from being configured. The messages are the kubelet's, where it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("{kind} {name:?} not found")]
    NoObject { kind: &'static str, name: String },
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey { kind: &'static str, namespace: String, name: String, key: String },
    #[error("unsupported fieldPath: {0}")]
    FieldPath(String),
    #[error("unsupported container resource: {0}")]
    Resource(String),
    #[error("couldn't parse env file")]
    EnvFile,
    #[error("environment variable key {key:?} not found in file {path:?}")]
    NoVariable { key: String, path: String },
    #[error("unsupported source of the variable {0}")]
    Source(String),
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.kind().0, self.name())
    }
}

impl Reference {
    fn kind(&self) -> (&'static str, &'static str) {
        match self {
            Self::ConfigMap(_) => ("configmap", "ConfigMap"),
            Self::Secret(_) => ("secret", "Secret"),
            Self::Claim(_) => ("persistentvolumeclaim", "PersistentVolumeClaim"),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::ConfigMap(name) | Self::Secret(name) | Self::Claim(name) => name,
        }
    }
}

/// Returns the objects that the container's environment refers to.
pub(crate) fn references(container: &Container) -> BTreeSet<Reference> {
    let from = container.env_from.iter().flatten().flat_map(|source| {
        let config_map = source.config_map_ref.iter().map(|found| Reference::ConfigMap(found.name.clone()));
        let secret = source.secret_ref.iter().map(|found| Reference::Secret(found.name.clone()));
        config_map.chain(secret)
    });
    let single = container.env.iter().flatten().filter_map(|variable| {
        let source = variable.value_from.as_ref()?;
        let config_map = source.config_map_key_ref.as_ref().map(|key| Reference::ConfigMap(key.name.clone()));
        config_map.or_else(|| source.secret_key_ref.as_ref().map(|key| Reference::Secret(key.name.clone())))
    });
    from.chain(single).collect()
}

/// Builds the environment from `base`, then `envFrom`, then `env`. Later values override earlier ones, but keep the
/// position of the first.
pub(crate) fn variables(
    pod: &Pod,
    container: &Container,
    base: Vec<(String, String)>,
    found: &ReferencedData,
    files: &EnvFiles,
    node: Capacity,
) -> Result<Vec<(String, String)>, ConfigError> {
    let mut variables = Variables::default();
    for (name, value) in base {
        variables.set(name, value);
    }
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let config_map =
            source.config_map_ref.as_ref().map(|one| (Reference::ConfigMap(one.name.clone()), one.optional));
        let secret = source.secret_ref.as_ref().map(|one| (Reference::Secret(one.name.clone()), one.optional));
        for (reference, optional) in config_map.into_iter().chain(secret) {
            match found.get(&reference) {
                Some(data) => {
                    for (key, value) in data.iter().filter(|(key, _)| is_variable_name(key)) {
                        variables.set(format!("{prefix}{key}"), value.clone());
                    }
                }
                None if optional == Some(true) => {}
                None => return Err(no_object(&reference)),
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let key = variable.value_from.as_ref().and_then(|source| source.file_key_ref.as_ref());
        let value = match key {
            Some(key) => in_file(key, files)?,
            None => value(pod, container, variable, &variables, found, node)?,
        };
        if let Some(value) = value {
            variables.set(variable.name.clone(), value);
        }
    }
    Ok(variables.0)
}

/// Variables in the order of their first appearance.
#[derive(Debug, Default)]
struct Variables(Vec<(String, String)>);

impl Variables {
    fn set(&mut self, name: String, value: String) {
        match self.0.iter_mut().find(|(present, _)| *present == name) {
            Some((_, present)) => *present = value,
            None => self.0.push((name, value)),
        }
    }
}

/// Returns a variable's value; `None` if it refers to an optional object that doesn't exist.
fn value(
    pod: &Pod,
    container: &Container,
    variable: &EnvVar,
    before: &Variables,
    found: &ReferencedData,
    node: Capacity,
) -> Result<Option<String>, ConfigError> {
    let Some(source) = &variable.value_from else {
        return Ok(Some(expand(variable.value.as_deref().unwrap_or_default(), &before.0)));
    };
    match source {
        EnvVarSource { field_ref: Some(field), .. } => downward(pod, &field.field_path).map(Some),
        EnvVarSource { resource_field_ref: Some(field), .. } => {
            let value = resource::value(pod, container, field, node);
            value.map(Some).ok_or_else(|| ConfigError::Resource(field.resource.clone()))
        }
        EnvVarSource { config_map_key_ref: Some(key), .. } => {
            by_key(pod, Reference::ConfigMap(key.name.clone()), &key.key, key.optional, found)
        }
        EnvVarSource { secret_key_ref: Some(key), .. } => {
            by_key(pod, Reference::Secret(key.name.clone()), &key.key, key.optional, found)
        }
        _ => Err(ConfigError::Source(variable.name.clone())),
    }
}

fn by_key(
    pod: &Pod,
    reference: Reference,
    key: &str,
    optional: Option<bool>,
    found: &ReferencedData,
) -> Result<Option<String>, ConfigError> {
    let optional = optional == Some(true);
    let Some(data) = found.get(&reference) else {
        return if optional { Ok(None) } else { Err(no_object(&reference)) };
    };
    match data.get(key) {
        Some(value) => Ok(Some(value.clone())),
        None if optional => Ok(None),
        None => Err(ConfigError::NoKey {
            kind: reference.kind().1,
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: reference.name().into(),
            key: key.into(),
        }),
    }
}

/// Returns the value that a file has for a variable, which isn't empty; `None` if it is missing and optional.
fn in_file(key: &FileKeySelector, files: &EnvFiles) -> Result<Option<String>, ConfigError> {
    let is_optional = key.optional == Some(true);
    let text = files.get(&env_file::name(key)).cloned().unwrap_or(Ok(None));
    let value = match text.map_err(|Malformed| ConfigError::EnvFile)? {
        Some(text) => env_file::value(&text, &key.key).map_err(|Malformed| ConfigError::EnvFile)?.map(str::to_owned),
        None if is_optional => None,
        None => return Err(ConfigError::EnvFile),
    };
    match value.filter(|value| !value.is_empty()) {
        None if !is_optional => Err(ConfigError::NoVariable { key: key.key.clone(), path: key.path.clone() }),
        value => Ok(value),
    }
}

fn no_object(reference: &Reference) -> ConfigError {
    ConfigError::NoObject { kind: reference.kind().0, name: reference.name().into() }
}

/// Returns the value of a downward API field of the pod
/// (<https://kubernetes.io/docs/concepts/workloads/pods/downward-api/#available-fields>).
pub(crate) fn downward(pod: &Pod, path: &str) -> Result<String, ConfigError> {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    let status = pod.status.as_ref();
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let map = match map {
            "metadata.labels" => &metadata.labels,
            "metadata.annotations" => &metadata.annotations,
            _ => return Err(ConfigError::FieldPath(path.into())),
        };
        return Ok(text(map.as_ref().and_then(|map| map.get(key))));
    }
    Ok(match path {
        "metadata.name" => text(metadata.name.as_ref()),
        "metadata.namespace" => text(metadata.namespace.as_ref()),
        "metadata.uid" => text(metadata.uid.as_ref()),
        "spec.nodeName" => text(spec.and_then(|spec| spec.node_name.as_ref())),
        "spec.serviceAccountName" => text(spec.and_then(|spec| spec.service_account_name.as_ref())),
        "status.hostIP" | "status.hostIPs" => text(status.and_then(|status| status.host_ip.as_ref())),
        "status.podIP" | "status.podIPs" => text(status.and_then(|status| status.pod_ip.as_ref())),
        _ => return Err(ConfigError::FieldPath(path.into())),
    })
}

/// Returns whether Kubernetes accepts a variable's name: printable ASCII without `=`.
fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| (' '..='~').contains(&c) && c != '=')
}

/// Replaces `$(NAME)` with the variable's value. `$$` stands for a dollar sign, and an unknown reference is left
/// unchanged.
pub(crate) fn expand(text: &str, variables: &[(String, String)]) -> String {
    expand_or(text, variables, &mut |_| {})
}

/// Like [`expand`], with an error that names the variables which are unknown or empty.
pub(crate) fn expand_all(text: &str, variables: &[(String, String)]) -> Result<String, String> {
    let mut missing = BTreeSet::new();
    let expanded = expand_or(text, variables, &mut |name| {
        missing.insert(name.to_owned());
    });
    if missing.is_empty() {
        return Ok(expanded);
    }
    Err(format!("missing value for {}", missing.into_iter().collect::<Vec<_>>().join(", ")))
}

/// Expands a text, and calls `missing` with the name of each variable that has no value.
fn expand_or(text: &str, variables: &[(String, String)], missing: &mut dyn FnMut(&str)) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        expanded += &rest[..dollar];
        rest = &rest[dollar + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
            continue;
        }
        let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) else {
            expanded.push('$');
            continue;
        };
        let value = variables.iter().find(|(present, _)| present == name).map(|(_, value)| value);
        if value.is_none_or(String::is_empty) {
            missing(name);
        }
        match value {
            Some(value) => expanded += value,
            None => {
                expanded += "$(";
                expanded += name;
                expanded.push(')');
            }
        }
        rest = after;
    }
    expanded + rest
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod() -> Pod {
        let pod = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "labels": {"app": "cow"}},
            "spec": {"nodeName": "kubewright", "containers": []},
            "status": {"podIP": "127.1.0.1"},
        });
        serde_json::from_value(pod).expect("a pod")
    }

    fn build(container: Value) -> Result<Vec<String>, ConfigError> {
        let mut container = container;
        container["name"] = json!("main");
        let container: Container = serde_json::from_value(container).expect("a container");
        let data = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let known = BTreeMap::from([
            (Reference::ConfigMap("settings".into()), data(&[("COLOR", "red"), ("bad=name", "x")])),
            (Reference::Secret("keys".into()), data(&[("token", "s3cret")])),
        ]);
        let wanted = references(&container);
        let found = known.into_iter().filter(|(reference, _)| wanted.contains(reference)).collect();
        let name = |path: &str| ("files".to_owned(), path.to_owned());
        let files = EnvFiles::from([
            (name("a.env"), Ok(Some("A='a'\nEMPTY=''".into()))),
            (name("bad.env"), Ok(Some("A=a".into()))),
            (name("link"), Err(Malformed)),
        ]);
        let base = vec![("HOME".into(), "/".into())];
        let variables = variables(&pod(), &container, base, &found, &files, Capacity::simulated())?;
        Ok(variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect())
    }

    #[test]
    fn variables_without_a_value_are_named() {
        let variables = [("A".to_owned(), "a".to_owned()), ("EMPTY".to_owned(), String::new())];
        assert_eq!(expand_all("$(A)/$$(B)", &variables).as_deref(), Ok("a/$(B)"));
        let why = "missing value for B, EMPTY".to_owned();
        assert_eq!(expand_all("$(EMPTY)/$(A)/$(B)/$(B)", &variables), Err(why));
    }

    #[test]
    fn variables_come_from_many_places() {
        let check = |container, expect: &[&str]| assert_eq!(build(container).expect("no error"), expect);
        check(json!({}), &["HOME=/"]);
        check(json!({"env": [{"name": "HOME", "value": "/me"}]}), &["HOME=/me"]);
        check(
            json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$(C)-$$(A)"}, {"name": "C"}]}),
            &["HOME=/", "A=1", "B=1-$(C)-$(A)", "C="],
        );
        check(json!({"envFrom": [{"prefix": "P_", "configMapRef": {"name": "settings"}}]}), &["HOME=/", "P_COLOR=red"]);
        check(
            json!({"env": [
                {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "COLOR"}}},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
            ]}),
            &["HOME=/", "COLOR=red", "TOKEN=s3cret"],
        );
        check(
            json!({"env": [
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            ]}),
            &["HOME=/", "NAME=web", "APP=cow", "IP=127.1.0.1"],
        );
        check(
            json!({"resources": {"limits": {"memory": "2Mi"}}, "env": [
                {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            ]}),
            &["HOME=/", "MEMORY=2"],
        );
        check(
            json!({"envFrom": [{"secretRef": {"name": "gone", "optional": true}}],
                   "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "no", "optional": true}}}]}),
            &["HOME=/"],
        );
    }

    #[test]
    fn variables_come_from_files() {
        let of = |path: &str, key: &str, optional: bool| {
            let key = json!({"volumeName": "files", "path": path, "key": key, "optional": optional});
            build(json!({"env": [{"name": "X", "valueFrom": {"fileKeyRef": key}}]})).map_err(|error| error.to_string())
        };
        let list = |expect: &[&str]| Ok(expect.iter().map(|one| (*one).to_owned()).collect());
        let (both, home) = (list(&["HOME=/", "X=a"]), list(&["HOME=/"]));
        assert_eq!((of("a.env", "A", false), of("a.env", "A", true)), (both.clone(), both));
        assert_eq!((of("a.env", "B", true), of("gone.env", "A", true)), (home.clone(), home));
        let missing = |key: &str| Err(format!("environment variable key {key:?} not found in file \"a.env\""));
        assert_eq!((of("a.env", "B", false), of("a.env", "EMPTY", false)), (missing("B"), missing("EMPTY")));
        for path in ["bad.env", "link", "gone.env"] {
            assert_eq!(of(path, "A", false), Err("couldn't parse env file".into()), "{path}");
        }
    }

    #[test]
    fn missing_references_are_named() {
        let check = |container, expect: &str| {
            assert_eq!(build(container).expect_err("an error").to_string(), expect);
        };
        check(json!({"envFrom": [{"configMapRef": {"name": "gone"}}]}), "configmap \"gone\" not found");
        check(
            json!({"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k"}}}]}),
            "secret \"gone\" not found",
        );
        check(
            json!({"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}}]}),
            "couldn't find key k in Secret shop/keys",
        );
        check(
            json!({"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.containers"}}}]}),
            "unsupported fieldPath: spec.containers",
        );
    }

    #[test]
    fn dollars() {
        let variables = [("A".to_owned(), "1".to_owned())];
        let check = |text, expect| assert_eq!(expand(text, &variables), expect, "{text}");
        check("plain", "plain");
        check("$(A)", "1");
        check("$$(A)", "$(A)");
        check("$A ${A} $", "$A ${A} $");
        check("$(unclosed", "$(unclosed");
        check("$(B) $(A)", "$(B) 1");
    }
}
