//! An object as a template of Helm's: marks are put into it as values, and become templates in its text.

use serde_json::Value;

use crate::yaml::{self, YamlError};

/// What marks begin and end with. YAML writes them plain, and nobody else writes them.
const OPEN: &str = "kubewright-mark-";
const CLOSE: &str = "-kram";

/// What stands for two braces, which are a template to Helm wherever they are.
const BRACES: &str = "kubewright-braces-kram";

/// The mark of the release's namespace.
const NAMESPACE: &str = "kubewright-namespace-kram";

/// The label that says who manages an object, and the mark of Helm, who then does.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const SERVICE: &str = "kubewright-service-kram";

/// The annotation by which cert-manager knows the namespace of a certificate, and its name.
const INJECT: &str = "cert-manager.io/inject-ca-from";

/// A kind of mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(&'static str);

/// A plain value.
pub(super) const VALUE: Mark = Mark("value");
/// A map or list, which goes on the lines below.
pub(super) const BLOCK: Mark = Mark("block");
/// An image, by repository and tag.
pub(super) const IMAGE: Mark = Mark("image");

impl Mark {
    /// The text that stands for one of the values.
    pub(super) fn mark(self, path: &str) -> String {
        format!("{OPEN}{}-{path}{CLOSE}", self.0)
    }
}

/// An object that is to be a template.
pub(super) struct Template(Value);

impl Template {
    /// Of an object, in which these namespaces stand for the release's.
    pub(super) fn of(mut object: Value, namespaces: &[String]) -> Self {
        protect(&mut object, namespaces);
        if let Some(manager) = object.pointer_mut("/metadata/labels").and_then(|labels| labels.get_mut(MANAGED_BY)) {
            *manager = SERVICE.into();
        }
        Self(object)
    }

    /// Its text.
    pub(super) fn text(&self) -> Result<String, YamlError> {
        Ok(yaml::documents([&self.0])?.lines().map(|line| filled(line) + "\n").collect())
    }

    /// That of a definition, which may be left out, and kept.
    pub(super) fn definition(mut self) -> Result<String, YamlError> {
        let keep = "helm.sh/resource-policy";
        self.0["metadata"]["annotations"][keep] = "keep".into();
        let text = self.text()?;
        let mut lines = Vec::new();
        let only = self.0["metadata"]["annotations"].as_object().is_some_and(|annotations| annotations.len() == 1);
        for line in text.lines() {
            let is_it = line.trim_start().starts_with(keep);
            // Annotations that would be empty are none.
            let begins = if only { line == "  annotations:" } else { is_it };
            lines.extend(begins.then_some("  {{- if .Values.crd.keep }}"));
            lines.push(line);
            lines.extend(is_it.then_some("  {{- end }}"));
        }
        Ok(format!("{{{{- if .Values.crd.enable }}}}\n{}\n{{{{- end }}}}\n", lines.join("\n")))
    }
}

/// Names the release's namespace, also in the DNS names of services, and keeps what looks like a template from being one.
fn protect(value: &mut Value, namespaces: &[String]) {
    match value {
        Value::String(text) if namespaces.contains(text) => *text = NAMESPACE.into(),
        Value::String(text) => {
            *text = text.replace("{{", BRACES);
            for namespace in namespaces {
                *text = text.replace(&format!(".{namespace}.svc"), &format!(".{NAMESPACE}.svc"));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| protect(item, namespaces)),
        Value::Object(map) => {
            map.values_mut().for_each(|value| protect(value, namespaces));
            if let Some(Value::String(from)) = map.get_mut(INJECT)
                && let Some((namespace, name)) = from.split_once('/')
                && namespaces.iter().any(|known| known == namespace)
            {
                *from = format!("{NAMESPACE}/{name}");
            }
        }
        _ => {}
    }
}

/// A line with templates for its marks.
fn filled(line: &str) -> String {
    let line = line.replace(BRACES, "{{ \"{{\" }}").replace(NAMESPACE, "{{ .Release.Namespace }}");
    let line = line.replace(SERVICE, "{{ .Release.Service }}");
    let Some((before, after)) = line.split_once(OPEN) else { return line };
    let Some((mark, after)) = after.split_once(CLOSE) else { return line };
    let Some((kind, path)) = mark.split_once('-') else { return line };
    let filled = match kind {
        "block" => {
            let indent = before.len() - before.trim_start_matches([' ', '-']).len() + 2;
            return format!("{}\n{{{{ toYaml .Values.{path} | indent {indent} }}}}", before.trim_end());
        }
        "image" => {
            format!("\"{{{{ .Values.{path}.repository }}}}{{{{ with .Values.{path}.tag }}}}:{{{{ . }}}}{{{{ end }}}}\"")
        }
        _ => format!("{{{{ .Values.{path} }}}}"),
    };
    format!("{before}{filled}{after}")
}
