//! The merge keys of the built-in types.

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

static BUILTIN: LazyLock<MergeKeys> = LazyLock::new(|| MergeKeys::parse(include_str!("../../../data/merge-keys.txt")));

/// How the fields of built-in types are merged: the part of their Go declarations that a strategic merge patch depends
/// on.
#[derive(Debug, Default)]
pub(super) struct MergeKeys {
    types: HashMap<&'static str, BTreeMap<&'static str, Field>>,
    /// The types of objects by group, version and kind.
    kinds: HashMap<(&'static str, &'static str, &'static str), &'static str>,
}

/// How a field is merged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Field {
    strategies: &'static str,
    pub(super) key: Option<&'static str>,
    type_name: Option<&'static str>,
}

/// A type, or one of which nothing is known: its lists are replaced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type<'a> {
    keys: &'a MergeKeys,
    fields: Option<&'a BTreeMap<&'static str, Field>>,
}

impl Field {
    pub(super) fn has(&self, strategy: &str) -> bool {
        self.strategies.split(',').any(|one| one == strategy)
    }
}

impl<'a> Type<'a> {
    /// Returns the type of the objects of a kind.
    pub(super) fn of_kind(group: &str, version: &str, kind: &str) -> Type<'static> {
        let keys = &*BUILTIN;
        let name = keys.kinds.get(&(group, version, kind)).copied();
        Type { keys, fields: name.and_then(|name| keys.types.get(name)) }
    }

    /// Returns how a field is merged, and its type: that of the items, if it is a list that is merged.
    pub(super) fn field(self, name: &str) -> (Field, Type<'a>) {
        let field = self.fields.and_then(|fields| fields.get(name)).copied().unwrap_or_default();
        let fields = field.type_name.and_then(|name| self.keys.types.get(name));
        (field, Type { fields, ..self })
    }
}

impl MergeKeys {
    /// Reads a table. Its lines are `type NAME`, `kind GROUP VERSION KIND TYPE`, and for each field of the type before
    /// `FIELD STRATEGIES KEY TYPE`; a dash stands for nothing.
    fn parse(text: &'static str) -> Self {
        let mut keys = Self::default();
        let mut current = "";
        let known = |text: &'static str| Some(text).filter(|text| *text != "-");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["type", name] => current = name,
                ["kind", group, version, kind, name] => {
                    keys.kinds.insert((known(group).unwrap_or_default(), version, kind), name);
                }
                [name, strategies, key, type_name] => {
                    let strategies = known(strategies).unwrap_or_default();
                    let field = Field { strategies, key: known(key), type_name: known(type_name) };
                    keys.types.entry(current).or_default().insert(name, field);
                }
                _ => {}
            }
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let text = include_str!("../../../data/merge-keys.txt");
        let count = |first: &str| text.lines().filter(|line| line.split(' ').next() == Some(first)).count();
        assert_eq!((BUILTIN.kinds.len(), BUILTIN.types.len()), (count("kind"), count("type")));
        let fields = BUILTIN.types.values().map(BTreeMap::len).sum::<usize>();
        assert_eq!(fields + BUILTIN.kinds.len() + BUILTIN.types.len() + 1, text.lines().count());
    }

    #[test]
    fn types_lead_to_the_keys_of_their_lists() {
        let (_, spec) = Type::of_kind("apps", "v1", "Deployment").field("spec");
        assert!(spec.field("strategy").0.has("retainKeys"));
        let (_, pod) = spec.field("template").1.field("spec");
        let (containers, container) = pod.field("containers");
        assert_eq!((containers.has("merge"), containers.key), (true, Some("name")));
        assert_eq!(container.field("ports").0.key, Some("containerPort"));
        assert!(pod.field("volumes").0.has("retainKeys"));
        assert!(!pod.field("tolerations").0.has("merge"));
        let (finalizers, _) = Type::of_kind("", "v1", "ConfigMap").field("metadata").1.field("finalizers");
        assert_eq!((finalizers.has("merge"), finalizers.key), (true, None));
        assert!(Type::of_kind("example.com", "v1", "Widget").field("metadata").1.fields.is_none());
    }
}
