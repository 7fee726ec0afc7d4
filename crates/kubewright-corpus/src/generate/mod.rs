//! The cases of a corpus, before they are recorded.
//!
//! A definition in `cases` names a kind, a valid object, and cases that depend on several fields. The others are
//! derived from the types of the object's fields: one field is missing, empty, malformed, negative, unknown or
//! duplicate at a time.

pub(crate) mod walk;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    change::Change,
    corpus::{Case, Corpus, Header, Verb},
    types::Types,
};

/// A file of `cases`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Definition {
    /// The path of the collection.
    path: String,
    /// The type's name, such as `io.k8s.api.core.v1.Pod`.
    #[serde(rename = "type")]
    kind: String,
    /// The valid object.
    base: Value,
    /// The pointers of the parts from which cases are derived.
    #[serde(default)]
    walk: Vec<String>,
    /// The pointers of the parts below these that are left out.
    #[serde(default)]
    skip: Vec<String>,
    /// Further cases of creation.
    #[serde(default)]
    create: Vec<Written>,
    /// Further cases of updates.
    #[serde(default)]
    update: Vec<Written>,
}

/// A case of a definition.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default)]
    remove: Vec<String>,
    /// Values to set, by pointer.
    #[serde(default)]
    set: serde_json::Map<String, Value>,
    /// The name and length of a long string, which would fill the file.
    #[serde(default)]
    long: std::collections::BTreeMap<String, usize>,
}

impl Written {
    fn case(self, verb: Verb) -> Case {
        let mut set: std::collections::BTreeMap<_, _> = self.set.into_iter().collect();
        set.extend(self.long.into_iter().map(|(pointer, length)| (pointer, json!("a".repeat(length)))));
        Case { case: self.name, verb, change: Change { remove: self.remove, set }, answer: None }
    }
}

/// A kind with a valid object.
#[derive(Clone, Debug)]
pub struct Template {
    /// The name of the definition.
    pub name: String,
    /// The path of the collection.
    pub path: String,
    /// The type's name.
    pub(crate) kind: String,
    /// The valid object.
    pub(crate) base: Value,
}

/// Reads the table of types.
///
/// # Errors
/// Returns an error if the file can't be read.
pub fn types(path: &Path) -> Result<Types> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    Types::parse(&text).with_context(|| format!("parse {}", path.display()))
}

/// Returns the kinds of all definitions in a directory.
///
/// # Errors
/// Returns an error if a file can't be read.
pub fn templates(definitions: &Path) -> Result<Vec<Template>> {
    let template = |path: &PathBuf| {
        let Definition { path: collection, kind, base, .. } = read(path)?;
        Ok(Template { name: name(path), path: collection, kind, base })
    };
    paths(definitions)?.iter().map(template).collect()
}

/// Returns the cases of all definitions in a directory, one corpus for each.
///
/// # Errors
/// Returns an error if a file can't be read.
pub fn generate(definitions: &Path, types: &Path) -> Result<Vec<Corpus>> {
    let types = self::types(types)?;
    paths(definitions)?.iter().map(|path| one(path, &types)).collect()
}

fn paths(definitions: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(definitions).with_context(|| format!("read {}", definitions.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<Definition> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("parse {}", path.display()))
}

fn name(path: &Path) -> String {
    path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned()
}

fn one(path: &Path, types: &Types) -> Result<Corpus> {
    let definition = read(path)?;
    let valid = Case { case: "valid".into(), verb: Verb::Create, change: Change::default(), answer: None };
    let mut cases = vec![valid];
    for root in &definition.walk {
        cases.extend(walk::walk(types, &definition.kind, &definition.base, root, &definition.skip));
    }
    cases.extend(definition.create.into_iter().map(|written| written.case(Verb::Create)));
    cases.extend(definition.update.into_iter().map(|written| written.case(Verb::Update)));
    let name = name(path);
    let header = Header { server: String::new(), path: definition.path, base: definition.base };
    Ok(Corpus { name, header, cases })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_definitions_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let types = Types::default();
        for entry in std::fs::read_dir(root.join("cases")).unwrap() {
            let path = entry.unwrap().path();
            one(&path, &types).unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
        }
    }
}
