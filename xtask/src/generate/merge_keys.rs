//! The merge keys of the built-in types: what a strategic merge patch needs of the table of types.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use anyhow::{Context, Result, bail};

const TYPES: &str = "crates/kubewright-apiserver/data/types.txt";
const MERGE_KEYS: &str = "crates/kubewright-apimachinery/data/merge-keys.txt";
const TYPE_META: &str = "meta.v1.TypeMeta";
const OBJECT_META: &str = "meta.v1.ObjectMeta";

/// Writes the merge keys, or with `check` compares them with the table.
pub(super) fn run(root: &Path, check: bool) -> Result<()> {
    let types = fs::read_to_string(root.join(TYPES)).with_context(|| format!("read {TYPES}"))?;
    let (path, text) = (root.join(MERGE_KEYS), generate(&types)?);
    if !check {
        return fs::write(&path, text).with_context(|| format!("write {MERGE_KEYS}"));
    }
    if fs::read_to_string(&path).unwrap_or_default() != text {
        bail!("{MERGE_KEYS} differs from {TYPES} (cargo xtask generate writes it)");
    }
    Ok(())
}

/// A field of a struct.
#[derive(Clone, Debug)]
struct Field {
    name: String,
    /// The patch strategies; empty without one.
    strategies: String,
    key: String,
    /// The struct of the field, or of the items of a merged list.
    type_name: String,
}

/// The fields of the structs, and the kinds with group and version.
#[derive(Debug, Default)]
struct Table {
    structs: BTreeMap<String, Vec<Field>>,
    /// The structs that are part of a struct, as if their fields were its own.
    embedded: BTreeMap<String, Vec<String>>,
    /// The group and version of each struct.
    groups: BTreeMap<String, (String, String)>,
}

/// Returns the text of the merge keys for a table of types.
fn generate(types: &str) -> Result<String> {
    let table = Table::read(types)?;
    let mut text = format!("# The merge keys of built-in types, by `cargo xtask generate` from {TYPES}.\n");
    let mut needed = BTreeSet::new();
    let mut kinds = Vec::new();
    for (name, (group, version)) in &table.groups {
        let has_type_meta = table.embedded.get(name).is_some_and(|it| it.iter().any(|it| it == TYPE_META));
        if has_type_meta && table.structs[name].iter().any(|field| field.type_name == OBJECT_META) {
            table.collect(name, &mut needed);
            let kind = name.rsplit('.').next().unwrap_or_default();
            kinds.push(format!("kind {group} {version} {kind} {name}"));
        }
    }
    for name in &needed {
        writeln!(text, "type {name}")?;
        for Field { name, strategies, key, type_name } in table.fields(name) {
            let is_needed = needed.contains(&type_name);
            if !strategies.is_empty() || is_needed {
                let type_name = if is_needed { &*type_name } else { "-" };
                writeln!(text, "{name} {} {} {type_name}", or_dash(&strategies), or_dash(&key))?;
            }
        }
    }
    kinds.iter().try_for_each(|kind| writeln!(text, "{kind}"))?;
    Ok(text)
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

impl Table {
    fn read(types: &str) -> Result<Self> {
        let (mut table, mut package, mut group, mut current) = (Self::default(), "", "", None);
        for line in types.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            match words.next().unwrap_or_default() {
                "package" => {
                    package = words.next().context("a package without a name")?;
                    group = words.next().context("a package without a group")?;
                }
                "struct" => {
                    let name = qualified(words.next().context("a struct without a name")?, package);
                    let version = package.rsplit('.').next().unwrap_or_default();
                    let group = if group == "core" { "-" } else { group };
                    table.groups.insert(name.clone(), (group.into(), version.into()));
                    table.structs.insert(name.clone(), Vec::new());
                    current = Some(name);
                }
                "alias" | "special" => current = None,
                _ => {
                    let current = current.as_ref().with_context(|| format!("a field without a struct: {line}"))?;
                    table.add(current, package, line)?;
                }
            }
        }
        Ok(table)
    }

    /// Adds a field: its protobuf number, name, type and marks.
    fn add(&mut self, name: &str, package: &str, line: &str) -> Result<()> {
        let words: Vec<_> = line.split(' ').collect();
        let [_, field, type_name, marks @ ..] = &*words else { bail!("a field without a type: {line}") };
        let mark = |prefix: &str| marks.iter().find_map(|mark| mark.strip_prefix(prefix)).unwrap_or_default();
        let (strategies, key) = (mark("patch="), mark("key="));
        let is_merged = strategies.split(',').any(|strategy| strategy == "merge");
        let plain = type_name.strip_prefix('*').unwrap_or(type_name);
        // The items of a list that is replaced, and the values of a map, need no keys.
        let plain = if is_merged { plain.strip_prefix("[]").unwrap_or(plain) } else { plain };
        let type_name = if plain.contains(['[', '*']) { String::new() } else { qualified(plain, package) };
        if *field == "." {
            self.embedded.entry(name.into()).or_default().push(type_name);
            return Ok(());
        }
        let field = Field {
            name: field.trim_end_matches('?').into(),
            strategies: strategies.into(),
            key: key.into(),
            type_name,
        };
        self.structs.entry(name.into()).or_default().push(field);
        Ok(())
    }

    /// Returns the fields of a struct, with those of its embedded ones.
    fn fields(&self, name: &str) -> Vec<Field> {
        let embedded = self.embedded.get(name).into_iter().flatten();
        let mut fields: Vec<_> = embedded.flat_map(|name| self.fields(name)).collect();
        fields.extend(self.structs.get(name).into_iter().flatten().cloned());
        fields
    }

    /// Adds a struct to those that are needed, with the structs of its fields, if one of them has a patch strategy.
    fn collect(&self, name: &str, needed: &mut BTreeSet<String>) -> bool {
        if needed.contains(name) {
            return true;
        }
        let mut is_needed = false;
        for field in self.fields(name) {
            let is_deeper = field.type_name != name && self.collect(&field.type_name, needed);
            is_needed |= is_deeper || !field.strategies.is_empty();
        }
        if is_needed {
            needed.insert(name.into());
        }
        is_needed
    }
}

/// Returns the last two parts of the package of a type, and its name.
fn qualified(name: &str, package: &str) -> String {
    let full = if name.contains('.') { name.to_owned() } else { format!("{package}.{name}") };
    let parts: Vec<_> = full.split('.').collect();
    parts[parts.len().saturating_sub(3)..].join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_merge_keys_are_those_of_the_table() {
        let check = std::env::var_os("KUBEWRIGHT_GENERATE").is_none();
        run(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), check).unwrap();
    }

    #[test]
    fn only_what_leads_to_a_strategy_is_kept() {
        let types = "package io.k8s.api.core.v1 core\n\
                     struct Pod\n\
                     - . io.k8s.apimachinery.pkg.apis.meta.v1.TypeMeta\n\
                     1 metadata? io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta\n\
                     2 spec? *PodSpec\n\
                     struct PodSpec\n\
                     1 containers []Container list=map:name patch=merge key=name\n\
                     2 tolerations []Container\n\
                     3 phase string\n\
                     struct Container\n\
                     1 . Common\n\
                     struct Common\n\
                     1 name string\n\
                     package io.k8s.apimachinery.pkg.apis.meta.v1 meta.k8s.io\n\
                     struct ObjectMeta\n\
                     1 finalizers []string patch=merge\n";
        let text = generate(types).unwrap();
        let lines: Vec<_> = text.lines().skip(1).collect();
        let expected = [
            "type core.v1.Pod",
            "metadata - - meta.v1.ObjectMeta",
            "spec - - core.v1.PodSpec",
            "type core.v1.PodSpec",
            "containers merge name -",
            "type meta.v1.ObjectMeta",
            "finalizers merge - -",
            "kind - v1 Pod core.v1.Pod",
        ];
        assert_eq!(lines, expected);
    }
}
