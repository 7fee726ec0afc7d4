//! Objects as Helm templates: marks are inserted as values, and become template expressions in the text.

use serde_json::Value;

use crate::yaml::{self, YamlError};

/// The delimiters of marks. YAML writes them unquoted, and no other text has them.
const OPEN: &str = "kubewright-mark-";
const CLOSE: &str = "-kram";

/// The escape for two braces, which start a template expression anywhere.
const BRACES: &str = "kubewright-braces-kram";

/// The mark for the namespace of the release.
const NAMESPACE: &str = "kubewright-namespace-kram";

/// The mark for the name that those of all objects begin with.
const FULLNAME: &str = "kubewright-fullname-kram";

/// The argument with that name.
const WEBHOOK_NAME: &str = "--webhook-name=";

/// The managed-by label, and the mark for its value, which is Helm.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const SERVICE: &str = "kubewright-service-kram";

/// The annotation with the namespace and name of a certificate for cert-manager.
const INJECT: &str = "cert-manager.io/inject-ca-from";

/// A kind of mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(&'static str);

/// A plain value.
pub(super) const VALUE: Mark = Mark("value");
/// A map or list, on the following lines.
pub(super) const BLOCK: Mark = Mark("block");
/// An image, from repository and tag.
pub(super) const IMAGE: Mark = Mark("image");
/// More items of a list. The mark is an item.
pub(super) const ITEMS: Mark = Mark("items");
/// The begin of items that a value turns off. The mark is an item.
pub(super) const IF: Mark = Mark("if");

/// Returns the mark for the end of items.
pub(super) fn end() -> Value {
    Mark("end").mark("items").into()
}

impl Mark {
    /// Returns the mark for a value.
    pub(super) fn mark(self, path: &str) -> String {
        format!("{OPEN}{}-{path}{CLOSE}", self.0)
    }
}

/// An object that becomes a template.
pub(super) struct Template(Value);

impl Template {
    /// Creates a template from an object. `namespaces` become the namespace of the release, and `prefix` becomes the
    /// name that those of all objects begin with.
    pub(super) fn of(mut object: Value, namespaces: &[String], prefix: &str) -> Self {
        protect(&mut object, namespaces);
        if object["kind"] == "CustomResourceDefinition" {
            // Descriptions may be any text.
            object.pointer_mut("/spec/conversion").into_iter().for_each(|conversion| named(conversion, prefix));
            object.pointer_mut("/metadata/annotations").into_iter().for_each(|annotations| named(annotations, prefix));
        } else {
            named(&mut object, prefix);
        }
        if let Some(manager) = object.pointer_mut("/metadata/labels").and_then(|labels| labels.get_mut(MANAGED_BY)) {
            *manager = SERVICE.into();
        }
        Self(object)
    }

    /// Returns the text of the template.
    pub(super) fn text(&self) -> Result<String, YamlError> {
        Ok(yaml::documents([&self.0])?.lines().map(|line| filled(line) + "\n").collect())
    }

    /// Returns the text of a CustomResourceDefinition, which is optional and may be kept at uninstallation.
    pub(super) fn definition(mut self) -> Result<String, YamlError> {
        let keep = "helm.sh/resource-policy";
        self.0["metadata"]["annotations"][keep] = "keep".into();
        let text = self.text()?;
        let mut lines = Vec::new();
        let only = self.0["metadata"]["annotations"].as_object().is_some_and(|annotations| annotations.len() == 1);
        for line in text.lines() {
            let is_it = line.trim_start().starts_with(keep);
            // No empty annotations.
            let begins = if only { line == "  annotations:" } else { is_it };
            lines.extend(begins.then_some("  {{- if .Values.crd.keep }}"));
            lines.push(line);
            lines.extend(is_it.then_some("  {{- end }}"));
        }
        Ok(format!("{{{{- if .Values.crd.enable }}}}\n{}\n{{{{- end }}}}\n", lines.join("\n")))
    }
}

/// Replaces the namespace, also in DNS names of services, and escapes text that looks like a template.
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

/// Replaces the prefix of the names of objects.
fn named(value: &mut Value, prefix: &str) {
    match value {
        Value::String(text) => {
            let (begin, inject) = (format!("{prefix}-"), format!("{NAMESPACE}/{prefix}-"));
            // A DNS name, and not a path or a sentence.
            let is_name = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
            if let Some(name) = text.strip_prefix(&begin).filter(|_| is_name) {
                *text = format!("{FULLNAME}-{name}");
            } else if let Some(name) = text.strip_prefix(&inject) {
                *text = format!("{NAMESPACE}/{FULLNAME}-{name}");
            } else if text.strip_prefix(WEBHOOK_NAME) == Some(prefix) {
                *text = format!("{WEBHOOK_NAME}{FULLNAME}");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| named(item, prefix)),
        Value::Object(map) => map.values_mut().for_each(|value| named(value, prefix)),
        _ => {}
    }
}

/// Replaces the marks in a line.
fn filled(line: &str) -> String {
    let line = line.replace(BRACES, "{{ \"{{\" }}").replace(NAMESPACE, "{{ .Release.Namespace }}");
    let line = line.replace(SERVICE, "{{ .Release.Service }}").replace(FULLNAME, "{{ include \"chart.fullname\" . }}");
    let Some((before, after)) = line.split_once(OPEN) else { return line };
    let Some((mark, after)) = after.split_once(CLOSE) else { return line };
    let Some((kind, path)) = mark.split_once('-') else { return line };
    let filled = match kind {
        "block" => {
            let indent = before.len() - before.trim_start_matches([' ', '-']).len() + 2;
            return format!("{}\n{{{{ toYaml .Values.{path} | indent {indent} }}}}", before.trim_end());
        }
        "items" => {
            let indent = before.len() - before.trim_start().len();
            return format!(
                "{}{{{{- with .Values.{path} }}}}\n{{{{ toYaml . | indent {indent} }}}}\n{}{{{{- end }}}}",
                &before[..indent],
                &before[..indent]
            );
        }
        "if" => return format!("{}{{{{- if .Values.{path} }}}}", before.trim_end_matches("- ")),
        "end" => return format!("{}{{{{- end }}}}", before.trim_end_matches("- ")),
        "image" => {
            format!("\"{{{{ .Values.{path}.repository }}}}{{{{ with .Values.{path}.tag }}}}:{{{{ . }}}}{{{{ end }}}}\"")
        }
        _ => format!("{{{{ .Values.{path} }}}}"),
    };
    format!("{before}{filled}{after}")
}
