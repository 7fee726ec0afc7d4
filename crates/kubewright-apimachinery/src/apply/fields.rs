//! Sets of fields as tries, and their wire format `fieldsV1`.
//!
//! The wire format is specified by KEP-555 and by `FieldsV1` in the Kubernetes API reference
//! (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/>).

use std::fmt::{self, Write};

use serde_json::{Map, Value};

/// A step from a value to a value inside it, stored in the `fieldsV1` notation. This makes comparison, sorting and
/// encoding cheap:
///
/// | format | steps to |
/// |---|---|
/// | `f:<name>` | a field of an object |
/// | `k:<object of the keys>` | an item of a list map, keys sorted by name |
/// | `v:<scalar>` | an item of a set |
/// | `i:<index>` | an item by its index; accepted when parsing, never written |
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathElement(Box<str>);

impl PathElement {
    /// Creates the step to a field of an object.
    pub fn field(name: &str) -> Self {
        Self(["f:", name].concat().into())
    }

    /// Creates the step to an item of a set.
    pub fn value(value: &Value) -> Self {
        let mut text = String::from("v:");
        write_scalar(&mut text, value);
        Self(text.into())
    }

    /// Creates the step to an item of a list map, by the values of its keys.
    pub fn key(mut keys: Vec<(&str, &Value)>) -> Self {
        keys.sort_unstable_by_key(|(name, _)| *name);
        let mut text = String::from("k:{");
        for (place, (name, value)) in keys.into_iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            write_string(&mut text, name);
            text.push(':');
            write_scalar(&mut text, value);
        }
        text.push('}');
        Self(text.into())
    }

    /// Creates the step to an item by its index, which errors show.
    pub(crate) fn index(index: usize) -> Self {
        Self(format!("i:{index}").into())
    }

    /// Parses the wire format, and normalizes the JSON in it.
    pub fn parse(text: &str) -> Result<Self, FieldsError> {
        let json =
            |json: &str| serde_json::from_str::<Value>(json).map_err(|_| FieldsError::NotAnElement(text.to_owned()));
        match text.split_once(':') {
            Some(("f", _)) => Ok(Self(text.into())),
            Some(("v", value)) => Ok(Self::value(&json(value)?)),
            Some(("k", keys)) => match json(keys)? {
                Value::Object(keys) => Ok(Self::key(keys.iter().map(|(name, value)| (name.as_str(), value)).collect())),
                _ => Err(FieldsError::NotAnElement(text.to_owned())),
            },
            Some(("i", index)) if index.parse::<i64>().is_ok() => Ok(Self(text.into())),
            _ => Err(FieldsError::NotAnElement(text.to_owned())),
        }
    }

    /// Returns the field's name if the step leads to a field.
    pub fn as_field(&self) -> Option<&str> {
        self.0.strip_prefix("f:")
    }
}

/// Formats the step as conflicts show it: `.spec`, `[name="web"]`, `[="a"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_once(':') {
            Some(("f", name)) => write!(f, ".{name}"),
            Some(("v", value)) => write!(f, "[={value}]"),
            Some(("k", keys)) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let keys: Vec<_> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Some((_, index)) => write!(f, "[{index}]"),
            None => f.write_str(&self.0),
        }
    }
}

fn write_scalar(text: &mut String, value: &Value) {
    match value {
        Value::String(string) => write_string(text, string),
        other => {
            let _ = write!(text, "{other}");
        }
    }
}

fn write_string(text: &mut String, string: &str) {
    if string.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        text.push('"');
        text.push_str(string);
        text.push('"');
    } else {
        let _ = write!(text, "{}", Value::from(string));
    }
}

/// A `fieldsV1` document is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldsError {
    /// A level is not an object.
    #[error("a field set must consist of objects")]
    NotAnObject,
    /// A key is not `.`, `f:…`, `k:…`, `v:…` or `i:…`.
    #[error("unknown path element {0:?}")]
    NotAnElement(String),
}

/// A set of fields. Ownership of an object or list is separate from ownership of the fields in it: a set may contain a
/// path without the paths below it, and the reverse. No subset is empty, and elements are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    owned: bool,
    children: Vec<(PathElement, FieldSet)>,
}

impl FieldSet {
    /// Creates a set of fields by their dotted names, such as `metadata.labels`.
    pub fn of<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all = Self::default();
        for path in paths {
            let chain = path.rsplit('.').fold(Self::leaf(), |below, name| Self {
                owned: false,
                children: vec![(PathElement::field(name), below)],
            });
            all.union(chain);
        }
        all
    }

    /// Returns whether the set contains an item of a list map that has none of the keys.
    pub(crate) fn has_item_without_key(&self) -> bool {
        self.children.iter().any(|(step, below)| &*step.0 == "k:{}" || below.has_item_without_key())
    }

    /// Creates a set that contains only the value that it describes.
    pub(crate) fn leaf() -> Self {
        Self { owned: true, children: Vec::new() }
    }

    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { owned: false, children: Vec::with_capacity(capacity) }
    }

    /// Returns whether the set has no paths.
    pub fn is_empty(&self) -> bool {
        !self.owned && self.children.is_empty()
    }

    /// Returns whether the set contains the value that it describes.
    pub fn is_owned(&self) -> bool {
        self.owned
    }

    pub(crate) fn set_owned(&mut self, owned: bool) {
        self.owned = owned;
    }

    /// Returns the subsets, each with the step that leads to it.
    pub fn children(&self) -> &[(PathElement, FieldSet)] {
        &self.children
    }

    /// Returns the subset that one step leads to.
    pub fn child(&self, element: &PathElement) -> Option<&FieldSet> {
        self.place(element).ok().map(|place| &self.children[place].1)
    }

    fn place(&self, element: &PathElement) -> Result<usize, usize> {
        self.children.binary_search_by(|(other, _)| other.cmp(element))
    }

    /// Adds a new subset. After the last one, the caller must call [`Self::sorted`].
    pub(crate) fn push(&mut self, element: PathElement, child: FieldSet) {
        if !child.is_empty() {
            self.children.push((element, child));
        }
    }

    pub(crate) fn sorted(mut self) -> Self {
        if !self.children.is_sorted_by(|(a, _), (b, _)| a < b) {
            self.children.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        }
        self
    }

    /// Adds all paths of `other`.
    pub fn union(&mut self, other: FieldSet) {
        self.owned |= other.owned;
        if self.children.is_empty() {
            self.children = other.children;
            return;
        }
        for (element, child) in other.children {
            match self.place(&element) {
                Ok(place) => self.children[place].1.union(child),
                Err(place) => self.children.insert(place, (element, child)),
            }
        }
    }

    /// Removes the paths of `other`, but not those below them. Returns whether any path was removed.
    pub(crate) fn remove(&mut self, other: &FieldSet) -> bool {
        let mut any = self.owned && other.owned;
        self.owned &= !other.owned;
        if !other.children.is_empty() {
            self.children.retain_mut(|(element, child)| {
                any |= other.child(element).is_some_and(|other| child.remove(other));
                !child.is_empty()
            });
        }
        any
    }

    /// Removes all paths of `other` and all paths below them. Returns whether any path was removed.
    pub fn subtract(&mut self, other: &FieldSet) -> bool {
        if other.owned {
            let was = !self.is_empty();
            *self = Self::default();
            return was;
        }
        let mut any = false;
        if !other.children.is_empty() {
            self.children.retain_mut(|(element, child)| {
                any |= other.child(element).is_some_and(|other| child.subtract(other));
                !child.is_empty()
            });
        }
        any
    }

    /// Returns whether the set has all paths of `other`.
    pub(crate) fn contains(&self, other: &FieldSet) -> bool {
        (self.owned || !other.owned)
            && other.children.iter().all(|(element, other)| self.child(element).is_some_and(|own| own.contains(other)))
    }

    /// Keeps only the paths of `within` and the paths below them.
    pub fn restrict(&mut self, within: &FieldSet) {
        if within.owned {
            return;
        }
        self.owned = false;
        self.children.retain_mut(|(element, child)| {
            let Some(within) = within.child(element) else { return false };
            child.restrict(within);
            !child.is_empty()
        });
    }

    /// Returns the paths that both sets have.
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut common = Self { owned: self.owned && other.owned, children: Vec::new() };
        for (element, other) in &other.children {
            if let Some(child) = self.child(element) {
                common.push(element.clone(), child.intersection(other));
            }
        }
        common
    }

    /// Changes the subsets.
    pub(crate) fn map_children(&mut self, mut change: impl FnMut(&PathElement, &mut FieldSet)) {
        self.children.iter_mut().for_each(|(element, child)| change(element, child));
    }

    /// Returns the paths of the set as conflicts show them: `.spec.containers[name="web"].image`. As in Kubernetes,
    /// those of each level are sorted and precede those below them.
    pub fn paths(&self) -> Vec<String> {
        fn collect(set: &FieldSet, path: &str, paths: &mut Vec<String>) {
            let owned = set.children.iter().filter(|(_, child)| child.owned);
            paths.extend(owned.map(|(element, _)| format!("{path}{element}")));
            for (element, child) in &set.children {
                collect(child, &format!("{path}{element}"), paths);
            }
        }
        let mut paths = Vec::new();
        paths.extend(self.owned.then(String::new));
        collect(self, "", &mut paths);
        paths
    }

    /// Parses the wire format. A `"."` on the outermost level is ignored, as in Kubernetes.
    ///
    /// # Errors
    /// If `value` is not in the wire format.
    pub fn from_fields_v1(fields: &Value) -> Result<Self, FieldsError> {
        Ok(Self { owned: false, ..Self::parse_level(fields)? })
    }

    fn parse_level(fields: &Value) -> Result<Self, FieldsError> {
        let Value::Object(fields) = fields else { return Err(FieldsError::NotAnObject) };
        let mut set = Self::with_capacity(fields.len());
        for (key, below) in fields {
            if key == "." {
                set.owned = true;
            } else {
                let mut child = Self::parse_level(below)?;
                child.owned |= child.children.is_empty();
                set.children.push((PathElement::parse(key)?, child));
            }
        }
        let mut set = set.sorted();
        // Keys with different text may denote the same element.
        set.children.dedup_by(|(element, child), (kept, into)| {
            let same = element == kept;
            if same {
                into.union(std::mem::take(child));
            }
            same
        });
        Ok(set)
    }

    /// Returns the wire format.
    pub fn into_fields_v1(self) -> Value {
        let itself = (self.owned && !self.children.is_empty()).then(|| (".".to_owned(), Value::Object(Map::new())));
        let children = self.children.into_iter().map(|(element, child)| (element.0.into(), child.into_fields_v1()));
        // They are sorted, so the map is built without searches.
        itself.into_iter().chain(children).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(fields: Value) -> FieldSet {
        FieldSet::from_fields_v1(&fields).unwrap()
    }

    #[test]
    fn the_wire_format_round_trips() {
        for fields in [
            json!({}),
            json!({"f:a": {}}),
            json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}}),
            json!({"f:ports": {r#"k:{"containerPort":80,"protocol":"TCP"}"#: {".": {}, "f:name": {}}}}),
            json!({"f:finalizers": {r#"v:"a\"b""#: {}, "v:1": {}, "i:3": {}}}),
        ] {
            assert_eq!(set(fields.clone()).into_fields_v1(), fields);
        }
    }

    #[test]
    fn the_wire_format_is_normalized() {
        let odd = json!({
            r#"k:{ "protocol" : "TCP", "port" : 80 }"#: {"f:a": {}},
            r#"k:{"port":80,"protocol":"TCP"}"#: {"f:b": {}},
            r#"v:"\u0061""#: {".": {}},
            ".": 0.1,
        });
        let expect = json!({r#"k:{"port":80,"protocol":"TCP"}"#: {"f:a": {}, "f:b": {}}, r#"v:"a""#: {}});
        assert_eq!(set(odd).into_fields_v1(), expect);
    }

    #[test]
    fn malformed_field_sets_are_refused() {
        for fields in [
            json!([]),
            json!({"f:a": 1}),
            json!({"a": {}}),
            json!({"x:a": {}}),
            json!({"k:[]": {}}),
            json!({"v:{": {}}),
            json!({"i:x": {}}),
        ] {
            assert!(FieldSet::from_fields_v1(&fields).is_err(), "{fields}");
        }
    }

    #[test]
    fn paths_are_shown_as_in_conflicts() {
        let fields = json!({
            "f:finalizers": {r#"v:"a""#: {}},
            "f:spec": {".": {}, "f:ports": {r#"k:{"port":80,"protocol":"TCP"}"#: {"f:name": {}}}},
        });
        let expect = [".spec", r#".finalizers[="a"]"#, r#".spec.ports[port=80,protocol="TCP"].name"#];
        assert_eq!(set(fields).paths(), expect);
        assert_eq!(FieldSet::of(["status", "metadata.labels"]).paths(), [".status", ".metadata.labels"]);
    }

    #[test]
    fn set_operations() {
        let a = || set(json!({"f:a": {".": {}, "f:x": {}, "f:y": {}}, "f:b": {"f:z": {}}}));
        let check = |got: FieldSet, expect: Value| assert_eq!(got.into_fields_v1(), expect);

        let mut union = a();
        union.union(set(json!({"f:b": {}, "f:0": {"f:k": {}}})));
        check(union, json!({"f:0": {"f:k": {}}, "f:a": {".": {}, "f:x": {}, "f:y": {}}, "f:b": {".": {}, "f:z": {}}}));

        let mut rest = a();
        assert!(!rest.subtract(&set(json!({"f:q": {}, "f:a": {"f:q": {}}}))));
        assert!(rest.subtract(&set(json!({"f:a": {"f:x": {}}, "f:b": {}}))));
        check(rest, json!({"f:a": {".": {}, "f:y": {}}}));

        let mut within = a();
        within.restrict(&set(json!({"f:a": {"f:x": {}}, "f:b": {}})));
        check(within, json!({"f:a": {"f:x": {}}, "f:b": {"f:z": {}}}));

        let mut rest = a();
        assert!(!rest.remove(&set(json!({"f:a": {"f:q": {}}, "f:b": {}}))));
        assert!(rest.remove(&set(json!({"f:a": {".": {}, "f:x": {}}, "f:b": {}}))));
        check(rest, json!({"f:a": {"f:y": {}}, "f:b": {"f:z": {}}}));

        let other = set(json!({"f:a": {"f:x": {}, "f:q": {}}, "f:b": {}}));
        check(a().intersection(&other), json!({"f:a": {"f:x": {}}}));
    }
}
