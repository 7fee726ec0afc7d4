//! The file of `--admission-control-config-file`
//! (<https://kubernetes.io/docs/reference/config-api/apiserver-config.v1/#apiserver-k8s-io-v1-AdmissionConfiguration>).

use std::path::Path;

use anyhow::{Context, Result, bail};
use kubewright_cluster::{ClusterBuilder, PodSecurityConfig};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{api_server::read, features, jwt::without_nulls};
use crate::audit::single_document;

/// A version and a kind.
type Type = (&'static str, &'static str);

const FILES: &[Type] = &[
    ("apiserver.config.k8s.io/v1", "AdmissionConfiguration"),
    ("apiserver.k8s.io/v1alpha1", "AdmissionConfiguration"),
];
const WEBHOOKS: &[Type] = &[("apiserver.config.k8s.io/v1", "WebhookAdmissionConfiguration")];
const QUOTAS: &[Type] = &[
    ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
    ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
    ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AdmissionConfiguration {
    #[serde(default)]
    plugins: Vec<PluginConfiguration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginConfiguration {
    #[serde(default)]
    name: String,
    #[serde(default)]
    path: String,
    configuration: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WebhookConfiguration {
    #[serde(default)]
    kube_config_file: String,
    #[serde(default)]
    static_manifests_dir: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct QuotaConfiguration {
    #[serde(default)]
    limited_resources: Vec<Value>,
}

/// The configurations of plugins.
#[derive(Default)]
pub(super) struct Admission {
    pod_security: Option<PodSecurityConfig>,
    /// A warning for each configuration that has no effect.
    pub(super) warnings: Vec<String>,
}

impl Admission {
    /// Configures the plugins of an API server.
    pub(super) fn apply(self, builder: ClusterBuilder) -> ClusterBuilder {
        match self.pod_security {
            Some(config) => builder.pod_security(config),
            None => builder,
        }
    }
}

/// Reads a file. `is_off` says whether a plugin is turned off; its configuration isn't read then.
///
/// # Errors
/// If the file or the configuration of a plugin can't be read, has values that Kubernetes refuses, or asks for what is
/// missing here: credentials for webhooks, and resources that need a quota.
pub(super) fn open(path: &str, is_off: impl Fn(&str) -> bool) -> Result<Admission> {
    let config: AdmissionConfiguration = document(&read(path)?, FILES).with_context(|| format!("read {path}"))?;
    let mut admission = Admission::default();
    let plugins = config.plugins.iter().enumerate();
    for (index, PluginConfiguration { name, path: file, configuration }) in plugins {
        // As in Kubernetes, the first one of a plugin counts.
        if config.plugins[..index].iter().any(|earlier| earlier.name == *name) || is_off(name) {
            continue;
        }
        let text = match (configuration, file.as_str()) {
            (Some(configuration), _) => configuration.to_string(),
            (None, "") => continue,
            (None, file) => read(Path::new(path).parent().unwrap_or(Path::new("")).join(file))?,
        };
        admission.configure(name, &text).with_context(|| format!("couldn't init admission plugin {name:?}"))?;
    }
    Ok(admission)
}

impl Admission {
    fn configure(&mut self, name: &str, text: &str) -> Result<()> {
        match name {
            "PodSecurity" => {
                self.pod_security = Some(PodSecurityConfig::from_value(without_nulls(single_document(text)?))?);
            }
            "MutatingAdmissionWebhook" | "ValidatingAdmissionWebhook" => {
                let config: WebhookConfiguration = document(text, WEBHOOKS)?;
                config.check()?;
            }
            "ResourceQuota" => {
                let config: QuotaConfiguration = document(text, QUOTAS)?;
                if !config.limited_resources.is_empty() {
                    bail!("limitedResources is not supported: resources without a quota are not limited");
                }
            }
            name => {
                let why = features::why_not_configurable(name);
                self.warnings.push(format!("the configuration of the admission plugin {name} has no effect: {why}"));
            }
        }
        Ok(())
    }
}

impl WebhookConfiguration {
    fn check(&self) -> Result<()> {
        let file = self.kube_config_file.as_str();
        if !file.is_empty() && !Path::new(file).is_absolute() {
            bail!("kubeConfigFile: Invalid value: {file:?}: must be an absolute file path");
        }
        if !file.is_empty() {
            bail!("kubeConfigFile is not supported: webhooks are called without credentials");
        }
        if !self.static_manifests_dir.is_empty() {
            bail!("staticManifestsDir is not supported: webhooks are those of the API");
        }
        Ok(())
    }
}

/// Reads an object of one of these types.
fn document<T: DeserializeOwned>(text: &str, types: &[Type]) -> Result<T> {
    let mut value = without_nulls(single_document(text)?);
    let fields = value.as_object_mut().context("it is no object")?;
    let [version, kind] = ["apiVersion", "kind"].map(|name| match fields.remove(name) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    });
    if !types.contains(&(&version, &kind)) {
        let (wanted, of) = types.first().copied().unwrap_or_default();
        bail!("it is of {version}, kind {kind}, instead of {wanted}, kind {of}");
    }
    Ok(serde_json::from_value(value)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn open_with(plugins: Value) -> Result<Admission> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admission.yaml");
        let file =
            json!({"apiVersion": "apiserver.k8s.io/v1alpha1", "kind": "AdmissionConfiguration", "plugins": plugins});
        fs::write(&path, file.to_string()).unwrap();
        fs::write(folder.path().join("pods.yaml"), pod_security(&json!({"enforce": "baseline"})).to_string()).unwrap();
        open(path.to_str().unwrap(), |name| name == "LimitRanger")
    }

    fn pod_security(defaults: &Value) -> Value {
        let version = "pod-security.admission.config.k8s.io/v1";
        json!({"apiVersion": version, "kind": "PodSecurityConfiguration", "defaults": defaults})
    }

    fn webhooks(fields: &[(&str, &str)]) -> Value {
        let mut config = json!({"apiVersion": WEBHOOKS[0].0, "kind": WEBHOOKS[0].1});
        for (name, value) in fields {
            config[name] = json!(value);
        }
        config
    }

    #[test]
    fn plugins_are_configured_here_or_in_a_file_beside() {
        for plugin in [
            json!({"name": "PodSecurity", "configuration": pod_security(&json!({}))}),
            json!({"name": "PodSecurity", "path": "pods.yaml"}),
        ] {
            let found = open_with(json!([plugin, {"name": "PodSecurity", "path": "missing.yaml"}])).unwrap();
            assert!(found.pod_security.is_some() && found.warnings.is_empty());
        }
        let found = open_with(json!([
            {"name": "LimitRanger", "configuration": {"a": "b"}}, {"name": "Priority"},
            {"name": "EventRateLimit", "configuration": {}}, {"name": "Priority", "configuration": {}},
            {"name": "ValidatingAdmissionWebhook", "configuration": webhooks(&[])},
            {"name": "Nope", "configuration": {}},
        ]));
        let about =
            |name: &str, why: &str| format!("the configuration of the admission plugin {name} has no effect: {why}");
        let expect = [about("EventRateLimit", "it is missing"), about("Nope", "Kubernetes 1.36 has no such plugin")];
        assert_eq!(found.unwrap().warnings, expect);
    }

    #[test]
    fn what_cannot_be_configured_is_an_error() {
        let quotas = json!({"apiVersion": QUOTAS[0].0, "kind": QUOTAS[0].1,
            "limitedResources": [{"resource": "pods"}]});
        for (plugin, expect) in [
            (
                json!({"name": "PodSecurity", "configuration": pod_security(&json!({"enforce": "x"}))}),
                "couldn't init admission plugin \"PodSecurity\": PodSecurity configuration error: enforce: must be one of",
            ),
            (json!({"name": "PodSecurity", "path": "missing.yaml"}), "missing.yaml"),
            (
                json!({"name": "PodSecurity", "configuration": webhooks(&[])}),
                "kind WebhookAdmissionConfiguration, instead of pod-security.admission.config.k8s.io/v1",
            ),
            (
                json!({"name": "MutatingAdmissionWebhook", "configuration": webhooks(&[("kubeConfigFile", "rel")])}),
                "kubeConfigFile: Invalid value: \"rel\": must be an absolute file path",
            ),
            (
                json!({"name": "MutatingAdmissionWebhook", "configuration": webhooks(&[("kubeConfigFile", "/a")])}),
                "kubeConfigFile is not supported",
            ),
            (json!({"name": "ResourceQuota", "configuration": quotas}), "limitedResources is not supported"),
            (json!({"name": "Priority", "nope": 1}), "unknown field `nope`"),
        ] {
            let error = format!("{:#}", open_with(json!([plugin])).err().unwrap());
            assert!(error.contains(expect), "{error}");
        }
    }
}
