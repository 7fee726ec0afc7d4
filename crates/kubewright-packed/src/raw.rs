//! An object as decoded from JSON: tokens without a dictionary.

use std::{borrow::Cow, fmt};

use kube_core::{ApiResource, DynamicResourceScope, ObjectMeta, Resource};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;

use super::token::{Token, Tokens};

/// The annotation in which `kubectl apply` keeps a second copy of the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The maximum nesting depth of an object's maps and lists. Real objects are far below it, though the API server allows
/// more. serde_json allows 127 levels, of which the list or watch event around an object needs some.
pub const MAX_DEPTH: u8 = 120;

/// The initial capacity of the buffers, which fits most objects, in bytes.
const USUAL: usize = 1024;

/// An object of any kind, decoded from JSON without a tree in between.
///
/// It implements `Deserialize` and kube's `Resource`, so that lists and watches of kube's client can produce it. It
/// leaves out the managed fields, the last-applied annotation, `apiVersion` and `kind`; name, namespace, UID and
/// resource version are in [`metadata`](Self::metadata).
///
/// With `METADATA_ONLY`, kube requests only the metadata of objects from the API server.
#[derive(Clone)]
pub struct RawObject<const METADATA_ONLY: bool = false> {
    /// Name, namespace, UID and resource version. The other fields are unset: they are in the tokens.
    pub metadata: ObjectMeta,
    /// The other metadata, then the rest of the object.
    pub(super) bytes: Vec<u8>,
    /// The offset at which the metadata ends.
    pub(super) middle: usize,
    pub(super) is_truncated: bool,
}

impl RawObject {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The offset at which the metadata ends.
    pub(super) fn middle(&self) -> usize {
        self.middle
    }

    /// Whether values were left out because they were nested more than [`MAX_DEPTH`] levels deep.
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }
}

/// The offset at which the metadata ends.
pub(super) fn metadata_of(bytes: &[u8]) -> usize {
    let mut tokens = Tokens::new(bytes);
    tokens.pass();
    tokens.at()
}

impl RawObject<true> {
    /// Converts to the type of complete objects. Fields other than the metadata are missing.
    pub fn into_object(self) -> RawObject {
        let Self { metadata, bytes, middle, is_truncated } = self;
        RawObject { metadata, bytes, middle, is_truncated }
    }
}

impl<const METADATA_ONLY: bool> fmt::Debug for RawObject<METADATA_ONLY> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawObject").field("name", &self.metadata.name).finish_non_exhaustive()
    }
}

impl<'de, const METADATA_ONLY: bool> Deserialize<'de> for RawObject<METADATA_ONLY> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut parts = Parts { head: Vec::with_capacity(USUAL), body: Vec::with_capacity(USUAL), ..Parts::default() };
        deserializer.deserialize_any(Root(&mut parts))?;
        let Parts { metadata, mut head, mut body, is_truncated } = parts;
        if head.is_empty() {
            return Err(D::Error::custom("an object without metadata"));
        }
        Token::End.write(&mut body);
        let middle = head.len();
        head.append(&mut body);
        Ok(Self { metadata, bytes: head, middle, is_truncated })
    }
}

/// With a scope that is known only at run time, so that the same code watches namespaced and cluster-scoped kinds.
impl<const METADATA_ONLY: bool> Resource for RawObject<METADATA_ONLY> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn metadata_api() -> bool {
        METADATA_ONLY
    }

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.kind)
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.group)
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.version)
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[derive(Default)]
struct Parts {
    metadata: ObjectMeta,
    /// The other metadata; empty until it has been read.
    head: Vec<u8>,
    body: Vec<u8>,
    is_truncated: bool,
}

struct Root<'a>(&'a mut Parts);

impl<'de> Visitor<'de> for Root<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(Parts { metadata, head, body, is_truncated }) = self;
        Token::Map.write(body);
        let name = |key: &str| match key {
            "apiVersion" | "kind" => Part::Ignored,
            "metadata" => Part::Metadata,
            _ => Part::Other,
        };
        while let Some(part) = map.next_key_seed(Key { out: &mut *body, name })? {
            match part {
                Part::Ignored => drop(map.next_value::<IgnoredAny>()?),
                Part::Metadata => map.next_value_seed(Metadata { metadata, out: head, is_truncated })?,
                Part::Other => {
                    map.next_value_seed(Any { out: body, is_truncated, left: MAX_DEPTH - 1, without: None })?
                }
            }
        }
        Ok(())
    }
}

/// A key of an object, by how its value is handled.
enum Part {
    Ignored,
    Metadata,
    Other,
}

/// A key of the metadata, by how its value is handled.
enum Field {
    Ignored,
    Name,
    Namespace,
    Uid,
    ResourceVersion,
    Annotations,
    Other,
}

/// A classified key.
pub(super) trait Named {
    /// Whether key and value are written.
    fn is_written(&self) -> bool;
}

impl Named for Part {
    fn is_written(&self) -> bool {
        matches!(self, Self::Other)
    }
}

impl Named for Field {
    fn is_written(&self) -> bool {
        matches!(self, Self::Annotations | Self::Other)
    }
}

/// Returns whether an entry is kept.
impl Named for bool {
    fn is_written(&self) -> bool {
        *self
    }
}

/// Reads a key, and writes it without an intermediate string.
pub(super) struct Key<'a, F> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) name: F,
}

impl<'de, T: Named, F: FnOnce(&str) -> T> DeserializeSeed<'de> for Key<'_, F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T: Named, F: FnOnce(&str) -> T> Visitor<'_> for Key<'_, F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<T, E> {
        let named = (self.name)(key);
        if named.is_written() {
            Token::Text(key).write(self.out);
        }
        Ok(named)
    }
}

struct Metadata<'a> {
    metadata: &'a mut ObjectMeta,
    out: &'a mut Vec<u8>,
    is_truncated: &'a mut bool,
}

impl<'de> DeserializeSeed<'de> for Metadata<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Metadata<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { metadata, out, is_truncated } = self;
        Token::Map.write(out);
        let name = |key: &str| match key {
            "managedFields" | "selfLink" => Field::Ignored,
            "name" => Field::Name,
            "namespace" => Field::Namespace,
            "uid" => Field::Uid,
            "resourceVersion" => Field::ResourceVersion,
            "annotations" => Field::Annotations,
            _ => Field::Other,
        };
        while let Some(field) = map.next_key_seed(Key { out: &mut *out, name })? {
            let known = match field {
                Field::Ignored => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                Field::Name => &mut metadata.name,
                Field::Namespace => &mut metadata.namespace,
                Field::Uid => &mut metadata.uid,
                Field::ResourceVersion => &mut metadata.resource_version,
                Field::Annotations | Field::Other => {
                    let without = matches!(field, Field::Annotations).then_some(LAST_APPLIED);
                    map.next_value_seed(Any { out, is_truncated, left: MAX_DEPTH - 2, without })?;
                    continue;
                }
            };
            // Any other type counts as missing, so that one malformed object doesn't fail its list.
            *known = match map.next_value::<Value>()? {
                Value::String(text) => Some(text),
                _ => None,
            };
        }
        Token::End.write(out);
        Ok(())
    }
}

/// Any value. If it is a map, the entry of key `without` is left out.
pub(super) struct Any<'a> {
    pub(super) out: &'a mut Vec<u8>,
    /// Set when a value is left out.
    pub(super) is_truncated: &'a mut bool,
    /// The levels of nesting that are left.
    pub(super) left: u8,
    pub(super) without: Option<&'static str>,
}

impl Any<'_> {
    fn write<E>(self, token: Token<'_>) -> Result<(), E> {
        token.write(self.out);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Any<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.left == 0 {
            *self.is_truncated = true;
            // serde_json skips ignored values without recursion.
            IgnoredAny::deserialize(deserializer)?;
            return self.write(Token::Null);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Any<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.write(Token::Null)
    }

    fn visit_none<E>(self) -> Result<(), E> {
        self.write(Token::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.write(Token::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.write(Token::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.write(u64::try_from(value).map_or_else(|_| Token::Negative(value.unsigned_abs() - 1), Token::Unsigned))
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.write(Token::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.write(Token::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        Token::List.write(self.out);
        let Self { out, is_truncated, left, .. } = self;
        while list.next_element_seed(Any { out, is_truncated, left: left - 1, without: None })?.is_some() {}
        Token::End.write(out);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        Token::Map.write(self.out);
        let Self { out, is_truncated, left, without } = self;
        let name = |key: &str| without != Some(key);
        while let Some(stays) = map.next_key_seed(Key { out, name })? {
            if stays {
                map.next_value_seed(Any { out, is_truncated, left: left - 1, without: None })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Token::End.write(out);
        Ok(())
    }
}
