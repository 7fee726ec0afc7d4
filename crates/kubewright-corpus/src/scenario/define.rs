//! The scenarios before they are recorded.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Scenario, Step, files};

/// A file of `scenarios`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Definition {
    /// The rows for each of which the steps of `template` are sent.
    #[serde(default)]
    each: Vec<Row>,
    /// The steps of each row. In them, `{collection}` is the path of the row's collection, `{name}` the name of its
    /// object, `{kind}` its kind, and a body that is `{object}` or `{status}` that value. A step whose body names a
    /// value that the row doesn't have is left out.
    #[serde(default)]
    template: Vec<Step>,
    /// The steps after those of the rows.
    #[serde(default)]
    steps: Vec<Step>,
}

/// A kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// The group and version, such as `apps/v1`.
    api: String,
    resource: String,
    kind: String,
    #[serde(default)]
    cluster: bool,
    /// The name of the object; by default `x`, or one that contains the namespace's if the kind isn't namespaced.
    #[serde(default)]
    name: Option<String>,
    /// The object without its type and name.
    #[serde(default)]
    object: Value,
    /// The status that is patched.
    #[serde(default)]
    status: Value,
}

/// Returns the scenarios of all definitions in a directory.
///
/// # Errors
/// Returns an error if a file can't be read, or two steps of a scenario have the same name.
pub fn define(directory: &Path) -> Result<Vec<Scenario>> {
    files(directory, "yaml")?.iter().map(|path| one(path).with_context(|| path.display().to_string())).collect()
}

fn one(path: &Path) -> Result<Scenario> {
    let definition: Definition = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
    let mut steps = Vec::new();
    for row in &definition.each {
        for step in &definition.template {
            steps.extend(row.step(step)?);
        }
    }
    steps.extend(definition.steps);
    for step in &mut steps {
        ensure!(step.send.contains(' '), "{:?} isn't a method and a path", step.send);
        if step.step.is_empty() {
            step.step.clone_from(&step.send);
        }
    }
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let scenario = Scenario { name, server: String::new(), steps };
    scenario.check_names()?;
    Ok(scenario)
}

impl Row {
    fn step(&self, template: &Step) -> Result<Option<Step>> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None if self.cluster => "{ns}-x".into(),
            None => "x".into(),
        };
        let root = if self.api.contains('/') { "/apis" } else { "/api" };
        let namespace = if self.cluster { "" } else { "/namespaces/{ns}" };
        let collection = format!("{root}/{}{namespace}/{}", self.api, self.resource);
        let fill = |text: &str| {
            text.replace("{collection}", &collection).replace("{name}", &name).replace("{kind}", &self.kind)
        };
        let mut step = template.clone();
        step.step = format!("{}: {}", self.api_kind(), fill(&template.step));
        step.send = fill(&step.send);
        step.body = match step.body.as_str() {
            Some("{object}") => self.object(&name),
            Some("{status}") if self.status.is_null() => return Ok(None),
            Some("{status}") => json!({"metadata": {"annotations": {"by": "status"}}, "status": self.status}),
            _ => serde_json::from_str(&fill(&step.body.to_string()))?,
        };
        Ok(Some(step))
    }

    fn api_kind(&self) -> String {
        format!("{} {}", self.api, self.kind)
    }

    fn object(&self, name: &str) -> Value {
        let mut object = json!({"apiVersion": self.api, "kind": self.kind, "metadata": {"name": name}});
        if !self.cluster {
            object["metadata"]["namespace"] = json!("{ns}");
        }
        for (field, value) in self.object.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_definitions_can_be_read() {
        let scenarios = define(&Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")).unwrap();
        assert!(!scenarios.is_empty());
    }

    #[test]
    fn steps_are_made_for_each_row() {
        let row: Row = serde_json::from_value(json!({
            "api": "apps/v1", "resource": "deployments", "kind": "Deployment", "object": {"spec": {"replicas": 1}},
        }))
        .unwrap();
        let step = |body: &str| Step {
            step: "create".into(),
            send: "POST {collection}".into(),
            body: json!(body),
            ..Step::default()
        };
        let made = row.step(&step("{object}")).unwrap().unwrap();
        assert_eq!(made.send, "POST /apis/apps/v1/namespaces/{ns}/deployments");
        assert_eq!(made.step, "apps/v1 Deployment: create");
        assert_eq!(made.body["spec"], json!({"replicas": 1}));
        assert_eq!(made.body["metadata"], json!({"name": "x", "namespace": "{ns}"}));
        assert_eq!(row.step(&step("{status}")).unwrap(), None);
    }
}
