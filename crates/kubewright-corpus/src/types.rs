//! The table of Kubernetes' types, as far as cases are derived from it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// All types by name, such as `io.k8s.api.core.v1.Pod`.
#[derive(Debug, Default)]
pub struct Types {
    types: BTreeMap<String, Type>,
}

/// A struct, or a name for another type.
#[derive(Debug, Default)]
pub(crate) struct Type {
    /// The fields of a struct, in order.
    pub(crate) fields: Vec<Field>,
    /// The underlying type of a named one.
    pub(crate) of: Option<String>,
    /// The values of an enumeration.
    pub(crate) values: Vec<String>,
}

/// A field of a struct.
#[derive(Debug)]
pub(crate) struct Field {
    /// The name; absent if the struct's own fields stand in its place.
    pub(crate) name: Option<String>,
    /// The type: `*` precedes that of a pointer, `[]` that of a list's elements, `map[string]` that of a map's values.
    pub(crate) kind: String,
}

impl Types {
    /// Reads the table of the API server, whose format is described in the module `types` of `kubewright-apimachinery`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut types = BTreeMap::new();
        let (mut package, mut current) = ("", String::new());
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.splitn(4, ' ');
            let first = words.next().unwrap_or_default();
            let (second, third) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            match first {
                "package" => package = second,
                "alias" => {
                    let values = words.next().map_or(Ok(Vec::new()), serde_json::from_str).context(line.to_owned())?;
                    let of = Some(qualified(package, third));
                    types.insert(qualified(package, second), Type { of, values, ..Type::default() });
                }
                "special" | "struct" => {
                    current = qualified(package, second);
                    types.insert(current.clone(), Type::default());
                }
                _ => {
                    let owner =
                        types.get_mut(&current).with_context(|| format!("field outside of a struct: {line}"))?;
                    let name = (second != ".").then(|| second.trim_end_matches('?').to_owned());
                    owner.fields.push(Field { name, kind: qualified(package, third) });
                }
            }
        }
        Ok(Self { types })
    }

    /// Returns a type. Types of the language itself, such as `string`, aren't in the table.
    pub(crate) fn get(&self, name: &str) -> Option<&Type> {
        self.types.get(name)
    }

    /// Returns the type of a field of a struct.
    pub(crate) fn field(&self, owner: &str, field: &str) -> Option<&str> {
        for candidate in &self.get(owner)?.fields {
            match &candidate.name {
                Some(name) if name == field => return Some(&candidate.kind),
                Some(_) => {}
                None => {
                    if let Some(kind) = self.field(candidate.kind.trim_start_matches('*'), field) {
                        return Some(kind);
                    }
                }
            }
        }
        None
    }
}

impl Types {
    /// Returns the fields of a struct, with those of embedded structs, as names and types.
    pub(crate) fn fields(&self, owner: &str) -> Vec<(&str, &str)> {
        let mut fields = Vec::new();
        for field in self.get(owner).map(|owner| &*owner.fields).unwrap_or_default() {
            match &field.name {
                Some(name) => fields.push((name.as_str(), field.kind.as_str())),
                None => fields.extend(self.fields(field.kind.trim_start_matches('*'))),
            }
        }
        fields
    }
}

/// Returns the full name of a type that is named in a package.
fn qualified(package: &str, name: &str) -> String {
    if let Some(rest) = name.strip_prefix('*') {
        return format!("*{}", qualified(package, rest));
    }
    if let Some(rest) = name.strip_prefix("[]") {
        return format!("[]{}", qualified(package, rest));
    }
    if let Some((key, rest)) = name.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return format!("map[{key}]{}", qualified(package, rest));
    }
    match name {
        "bytes" => "[]byte".into(),
        "uid" => "string".into(),
        "string" | "bool" | "int32" | "int64" | "float64" | "any" => name.into(),
        full if full.contains('.') => full.into(),
        own => format!("{package}.{own}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_table() {
        let text = "# comment\npackage a.v1 a\nalias Mode string [\"A\",\"B\"]\nstruct Spec\n1 mode?? *Mode optional\n\
                    2 data map[string]bytes\n3 items? []b.v1.Item list=atomic\n- . b.v1.Meta";
        let types = Types::parse(text).unwrap();
        assert_eq!(types.get("a.v1.Mode").unwrap().values, ["A", "B"]);
        assert_eq!(types.field("a.v1.Spec", "mode"), Some("*a.v1.Mode"));
        assert_eq!(types.field("a.v1.Spec", "data"), Some("map[string][]byte"));
        assert_eq!(types.field("a.v1.Spec", "items"), Some("[]b.v1.Item"));
    }
}
