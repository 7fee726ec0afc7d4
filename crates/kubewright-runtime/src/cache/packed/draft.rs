//! An object as it comes off the wire, as tokens without a dictionary.

use std::{borrow::Cow, fmt, sync::Arc};

use kube::{
    Resource,
    api::ObjectMeta,
    core::{DynamicObject, DynamicResourceScope},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;

use super::{
    dictionary::Dictionary,
    document::{Document, Identity, metadata_of},
    token::Token,
    without::without,
};
use crate::object::KindName;

/// The annotation in which `kubectl apply` keeps a second copy of the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// How deep an object's maps and lists may be nested; an API server takes more. JSON is read recursively, up to 127 levels, of
/// which a list or an event needs some.
pub(in crate::cache) const DEEPEST: u8 = 120;

/// How many bytes most objects' metadata, and the rest of them, take at most: it saves growing there step by step.
const USUAL: usize = 1024;

/// Any object, whatever its type says of it: without managed fields, the last-applied annotation, and what its kind and
/// its [`Draft::metadata`] say anyhow.
///
/// With `METADATA_ONLY`, kube asks the server for no more than the metadata.
#[derive(Clone)]
pub(crate) struct Draft<const METADATA_ONLY: bool = false> {
    /// What tells one object from another: name, namespace, UID and resource version.
    pub(crate) metadata: ObjectMeta,
    /// The rest of the metadata, then the rest of the object.
    bytes: Vec<u8>,
    /// Where the metadata ends.
    middle: usize,
    is_cut: bool,
}

impl Draft {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where in the bytes the metadata ends.
    pub(super) fn middle(&self) -> usize {
        self.middle
    }

    /// The same object as if it didn't have these fields.
    pub(in crate::cache) fn without(&self, fields: &[Vec<String>]) -> Self {
        let bytes = without(&self.bytes, fields);
        Self { metadata: self.metadata.clone(), middle: metadata_of(&bytes), bytes, is_cut: self.is_cut }
    }

    /// The same object after `transform`, which sees all of it that is kept.
    ///
    /// # Errors
    /// When its metadata is none.
    pub(in crate::cache) fn transformed(
        &self,
        identity: Identity<'_>,
        transform: impl FnOnce(&mut DynamicObject),
    ) -> Result<Self, String> {
        let ObjectMeta { uid, resource_version, .. } = &self.metadata;
        let (uid, version) = (uid.as_ref().map(|uid| uid as _), resource_version.as_ref().map(|version| version as _));
        let document = Document::packed(&self.bytes, Identity { uid, resource_version: version, ..identity });
        // A draft has its strings as they are.
        let mut object = document.read(&Dictionary::default()).map_err(|error| error.to_string())?;
        transform(&mut object);
        let object = serde_json::to_value(&object).map_err(|error| error.to_string())?;
        let transformed: Self = serde_json::from_value(object).map_err(|error| error.to_string())?;
        Ok(Self { metadata: self.metadata.clone(), ..transformed })
    }

    /// Whether it is nested so deep that not all of it could be read.
    pub(in crate::cache) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// How many offsets there are to mark.
    pub(in crate::cache) fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl Draft<true> {
    /// The same object, as one of which there is no more.
    pub(in crate::cache) fn whole(self) -> Draft {
        let Self { metadata, bytes, middle, is_cut } = self;
        Draft { metadata, bytes, middle, is_cut }
    }
}

impl<const METADATA_ONLY: bool> fmt::Debug for Draft<METADATA_ONLY> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft").field("name", &self.metadata.name).finish_non_exhaustive()
    }
}

impl<'de, const METADATA_ONLY: bool> Deserialize<'de> for Draft<METADATA_ONLY> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut parts = Parts { head: Vec::with_capacity(USUAL), body: Vec::with_capacity(USUAL), ..Parts::default() };
        deserializer.deserialize_any(Root(&mut parts))?;
        let Parts { metadata, mut head, mut body, is_cut } = parts;
        if head.is_empty() {
            return Err(D::Error::custom("an object without metadata"));
        }
        Token::End.write(&mut body);
        let middle = head.len();
        head.append(&mut body);
        Ok(Self { metadata, bytes: head, middle, is_cut })
    }
}

/// The wire form of a kind, for kube's watcher: a scope that is known only at run time, so that one code serves namespaced
/// and cluster-scoped kinds.
impl<const METADATA_ONLY: bool> Resource for Draft<METADATA_ONLY> {
    type DynamicType = Arc<KindName>;
    type Scope = DynamicResourceScope;

    fn metadata_api() -> bool {
        METADATA_ONLY
    }

    fn kind(kind: &Arc<KindName>) -> Cow<'_, str> {
        Cow::Borrowed(&kind.kind)
    }

    fn group(kind: &Arc<KindName>) -> Cow<'_, str> {
        Cow::Borrowed(&kind.group)
    }

    fn version(kind: &Arc<KindName>) -> Cow<'_, str> {
        Cow::Borrowed(&kind.version)
    }

    fn plural(kind: &Arc<KindName>) -> Cow<'_, str> {
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
    /// The rest of the metadata: empty until it has come.
    head: Vec<u8>,
    body: Vec<u8>,
    is_cut: bool,
}

struct Root<'a>(&'a mut Parts);

impl<'de> Visitor<'de> for Root<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(Parts { metadata, head, body, is_cut }) = self;
        Token::Map.write(body);
        let name = |key: &str| match key {
            "apiVersion" | "kind" => Part::Ignored,
            "metadata" => Part::Metadata,
            _ => Part::Other,
        };
        while let Some(part) = map.next_key_seed(Key { out: &mut *body, name })? {
            match part {
                Part::Ignored => drop(map.next_value::<IgnoredAny>()?),
                Part::Metadata => map.next_value_seed(Metadata { metadata, out: head, is_cut })?,
                Part::Other => map.next_value_seed(Any { out: body, is_cut, left: DEEPEST - 1, without: None })?,
            }
        }
        Ok(())
    }
}

/// A key of an object's, and what becomes of its value.
enum Part {
    Ignored,
    Metadata,
    Other,
}

/// A key of the metadata, and what becomes of its value.
enum Field {
    Ignored,
    Name,
    Namespace,
    Uid,
    ResourceVersion,
    Annotations,
    Other,
}

/// What a key's name stands for.
trait Named {
    /// Whether the key is written, as its value will be.
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

/// Whether an entry stays.
impl Named for bool {
    fn is_written(&self) -> bool {
        *self
    }
}

/// A key, which goes straight to where it is written.
struct Key<'a, F> {
    out: &'a mut Vec<u8>,
    name: F,
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
    is_cut: &'a mut bool,
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
        let Self { metadata, out, is_cut } = self;
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
                    map.next_value_seed(Any { out, is_cut, left: DEEPEST - 2, without })?;
                    continue;
                }
            };
            // Anything else than text is as good as none, so that a fault here spoils no list.
            *known = match map.next_value::<Value>()? {
                Value::String(text) => Some(text),
                _ => None,
            };
        }
        Token::End.write(out);
        Ok(())
    }
}

/// Any value, without an entry of that key if it is a map.
pub(super) struct Any<'a> {
    pub(super) out: &'a mut Vec<u8>,
    /// Whether something was left out.
    pub(super) is_cut: &'a mut bool,
    /// How many levels it may have.
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
            *self.is_cut = true;
            // Unlike anything else, this is read without recursion.
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
        let Self { out, is_cut, left, .. } = self;
        while list.next_element_seed(Any { out, is_cut, left: left - 1, without: None })?.is_some() {}
        Token::End.write(out);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        Token::Map.write(self.out);
        let Self { out, is_cut, left, without } = self;
        let name = |key: &str| without != Some(key);
        while let Some(stays) = map.next_key_seed(Key { out, name })? {
            if stays {
                map.next_value_seed(Any { out, is_cut, left: left - 1, without: None })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Token::End.write(out);
        Ok(())
    }
}
