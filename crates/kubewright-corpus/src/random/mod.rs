//! Random scenarios, whose answers by two servers are compared.
//!
//! An object of a definition in `cases` is created with some changes of its fields, which their types allow or not.
//! Then it is changed again by updates, patches and applies, gets a status, and is deleted.

mod edit;
mod value;

use fastrand::Rng;
use serde_json::{Map, Value, json};

use crate::{
    generate::Template,
    scenario::{Scenario, Step},
    types::Types,
};

/// The greatest number of changes after the creation.
const CHANGES: usize = 3;

/// A source of random scenarios.
#[derive(Debug)]
pub struct Generator<'a> {
    types: &'a Types,
    templates: &'a [Template],
    random: Rng,
}

impl<'a> Generator<'a> {
    /// Creates a generator. The same seed makes the same scenarios.
    #[expect(clippy::disallowed_methods, reason = "the seed is given, and this crate depends on no other one")]
    pub fn new(types: &'a Types, templates: &'a [Template], seed: u64) -> Self {
        Self { types, templates, random: Rng::with_seed(seed) }
    }

    /// Returns a scenario with this number of objects; each step is named after the template and the index of its
    /// object.
    pub fn scenario(&mut self, name: &str, objects: usize) -> Scenario {
        let mut steps = Vec::new();
        for index in 0..objects {
            if let Some(template) = self.random.choice(self.templates) {
                self.object(template, index, &mut steps);
            }
        }
        Scenario { name: name.to_owned(), server: String::new(), steps }
    }

    fn object(&mut self, template: &Template, index: usize, steps: &mut Vec<Step>) {
        let (path, base) = placed(template, index);
        let name = base["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut add = |what: &str, send: String, content_type: &str, body: Value| {
            let step = format!("{} {index} {} {what}", template.name, steps.len());
            steps.push(Step { step, send, content_type: content_type.into(), body, ..Step::default() });
        };
        let number = self.random.usize(0..3);
        let mut object = self.edited(template, &base, number);
        add("create", format!("POST {path}"), "", object.clone());
        for _ in 0..self.random.usize(0..=CHANGES) {
            let at = format!("{path}/{name}");
            let before = object.clone();
            let number = self.random.usize(1..3);
            object = self.edited(template, &before, number);
            match self.random.usize(0..7) {
                0 => add("update", format!("PUT {at}"), "", object.clone()),
                1 => add("merge patch", format!("PATCH {at}"), "merge", difference(&before, &object)),
                2 => add("strategic patch", format!("PATCH {at}"), "strategic", difference(&before, &object)),
                3 => add("apply", format!("PATCH {at}?fieldManager=random"), "apply", object.clone()),
                4 => add("forced apply", format!("PATCH {at}?fieldManager=random&force=true"), "apply", object.clone()),
                5 => {
                    let status = self.status(template);
                    add("status", format!("PATCH {at}/status"), "merge", json!({"status": status}));
                }
                _ => add("dry run", format!("PUT {at}?dryRun=All"), "", object.clone()),
            }
        }
        add("delete", format!("DELETE {path}/{name}?gracePeriodSeconds=0"), "", Value::Null);
    }

    fn status(&mut self, template: &Template) -> Value {
        let kind = self.types.field(&template.kind, "status").unwrap_or_default().to_owned();
        self.value(&kind, 3)
    }

    fn edited(&mut self, template: &Template, object: &Value, number: usize) -> Value {
        let mut object = object.clone();
        for _ in 0..number {
            if let Some(change) = self.edit(&template.kind, &object) {
                object = change.apply(&object);
            }
        }
        object
    }
}

/// Returns the path of the collection and the valid object of a template, in the namespace of the scenario.
fn placed(template: &Template, index: usize) -> (String, Value) {
    let text = template.base.to_string().replace("corpus", "{ns}");
    let mut base: Value = serde_json::from_str(&text).unwrap_or_default();
    let name = base["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let is_namespaced = template.path.contains("/namespaces/");
    if is_namespaced {
        base["metadata"]["name"] = format!("{name}-{index}").into();
    } else if !name.contains("{ns}") {
        base["metadata"]["name"] = format!("{{ns}}-{name}").into();
    }
    (template.path.replace("/namespaces/corpus/", "/namespaces/{ns}/"), base)
}

/// Returns the merge patch that turns one object into another. The servers' own code isn't used, so that an error in it
/// is found.
fn difference(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let mut patch = Map::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in to {
        match from.get(name) {
            Some(before) if before == value => {}
            Some(before) => drop(patch.insert(name.clone(), difference(before, value))),
            None => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::generate;

    #[test]
    fn the_same_seed_makes_the_same_scenarios() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let types = generate::types(&root.join("../kubewright-apiserver/data/types.txt")).unwrap();
        let templates = generate::templates(&root.join("cases")).unwrap();
        let scenario = |seed| Generator::new(&types, &templates, seed).scenario("random", 50);
        let one = scenario(1);
        assert!(one.steps.len() >= 100 && one == scenario(1) && one != scenario(2));
        let changed = one
            .steps
            .iter()
            .filter(|step| step.send.starts_with("POST"))
            .any(|step| templates.iter().all(|template| placed(template, 0).1["spec"] != step.body["spec"]));
        assert!(changed, "no field of a new object is changed");
    }
}
