//! JSON patch ([RFC 6902](https://www.rfc-editor.org/rfc/rfc6902)): a list of operations on JSON pointers, which apply
//! all or nothing.
//!
//! The `json-patch` crate isn't used, because the limits must be checked between operations and some results follow
//! kube-apiserver instead of the RFC: an operation without a value is one with null, which an absent field equals, `1`
//! and `1.0` are equal, a `replace` adds a field that is missing, only a `replace` changes the whole document, and
//! indexes may be negative.

use std::{borrow::Cow, num::IntErrorKind};

use serde_json::Value;

use super::PatchError;
use crate::{depth, go_json, types::json_type};

/// The maximum number of operations in one patch, as in Kubernetes.
pub const OPERATIONS_LIMIT: usize = 10_000;

/// The maximum size that all `copy` operations of a patch add to the document, in bytes as JSON. It equals the limit of
/// a request.
const COPY_LIMIT: usize = 3 * 1024 * 1024;

/// The maximum number of list items shifted by insertions and removals, plus values visited to compute their depth.
/// Real patches stay far below it. Shifting this many items takes about fifty milliseconds.
const WORK_LIMIT: usize = 16_000_000;

/// Returns the document after all operations of `patch`.
///
/// Returns [`PatchError::Malformed`] if `patch` is not a JSON patch, [`PatchError::Rejected`] if an operation does not
/// apply to the document, and [`PatchError::TooLarge`] if a limit is exceeded.
pub fn apply(document: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = parse(patch)?;
    let mut patching = Patching::new(document.clone());
    for operation in &operations {
        patching.perform(operation)?;
    }
    Ok(patching.root)
}

/// An operation as it is sent. What it lacks is an error only when it is performed, as in kube-apiserver's library.
struct Operation<'a> {
    kind: &'a str,
    path: Option<Pointer<'a>>,
    from: Option<Pointer<'a>>,
    value: Option<&'a Value>,
}

/// A JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)). What precedes the first slash is ignored.
struct Pointer<'a> {
    text: &'a str,
    tokens: Vec<Cow<'a, str>>,
}

fn malformed(why: impl Into<String>) -> PatchError {
    PatchError::Malformed(why.into())
}

fn rejected(why: impl Into<String>) -> PatchError {
    PatchError::Rejected(why.into())
}

fn parse(patch: &Value) -> Result<Vec<Operation<'_>>, PatchError> {
    let Value::Array(operations) = patch else {
        return Err(malformed("a JSON patch must be a list of operations"));
    };
    if operations.len() > OPERATIONS_LIMIT {
        let count = operations.len();
        let why = format!("The allowed maximum operations in a JSON patch is {OPERATIONS_LIMIT}, got {count}");
        return Err(PatchError::TooLarge(why));
    }
    operations.iter().map(parse_operation).collect()
}

fn parse_operation(operation: &Value) -> Result<Operation<'_>, PatchError> {
    let begin = "error decoding patch: json: cannot unmarshal";
    if !operation.is_object() && !operation.is_null() {
        let found = json_type(operation);
        return Err(malformed(format!("{begin} {found} into Go value of type handlers.jsonPatchOp")));
    }
    let text = |member: &str| match operation.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(other) => {
            let found = json_type(other);
            Err(malformed(format!("{begin} {found} into Go struct field jsonPatchOp.{member} of type string")))
        }
    };
    let (from, kind, path) = (text("from")?, text("op")?, text("path")?);
    Ok(Operation {
        kind: kind.unwrap_or("unknown"),
        path: path.map(Pointer::parse),
        from: from.map(Pointer::parse),
        value: operation.get("value"),
    })
}

impl<'a> Operation<'a> {
    fn path(&self) -> Result<&Pointer<'a>, PatchError> {
        self.path.as_ref().ok_or_else(|| {
            let why = match self.kind {
                "add" | "remove" | "copy" => "missing value",
                _ => "operation missing path field: missing value",
            };
            rejected(format!("{} operation failed to decode path: {why}", self.kind))
        })
    }

    fn from(&self) -> Result<&Pointer<'a>, PatchError> {
        self.from.as_ref().ok_or_else(|| {
            let kind = self.kind;
            rejected(format!("{kind} operation failed to decode from: operation, missing from field: missing value"))
        })
    }

    /// Returns the value; null if the operation has no value.
    fn value(&self) -> &'a Value {
        self.value.unwrap_or(&Value::Null)
    }
}

impl<'a> Pointer<'a> {
    fn parse(text: &'a str) -> Self {
        Self { text, tokens: text.split('/').skip(1).map(unescape).collect() }
    }
}

fn unescape(token: &str) -> Cow<'_, str> {
    // The order matters: `~01` means `~1`, not `/`.
    if token.contains('~') { token.replace("~1", "/").replace("~0", "~").into() } else { token.into() }
}

/// Why a place in the document can't be read or changed.
enum Failure {
    /// There is no list or object that contains it.
    Missing,
    /// The list or object doesn't have it.
    Invalid(String),
    /// A limit is exceeded.
    Limit(PatchError),
}

impl Failure {
    /// Returns the error of an operation, with the beginnings of its messages about a place that is missing and one
    /// that is invalid.
    fn of(self, missing: impl FnOnce() -> String, invalid: impl FnOnce() -> String) -> PatchError {
        match self {
            Self::Missing => rejected(format!("{}: missing value", missing())),
            Self::Invalid(why) => rejected(format!("{}: {why}", invalid())),
            Self::Limit(error) => error,
        }
    }
}

/// A document to which some operations of a patch have been applied.
struct Patching {
    root: Value,
    /// An upper bound of the document's depth, maintained without visiting moved values.
    depth: usize,
    /// Bytes added by `copy`.
    copied: usize,
    /// List items shifted and values visited.
    work: usize,
}

impl Patching {
    fn new(root: Value) -> Self {
        Self { depth: depth::of(&root), root, copied: 0, work: 0 }
    }

    fn perform(&mut self, operation: &Operation<'_>) -> Result<(), PatchError> {
        match operation.kind {
            "add" => {
                let (path, value) = (operation.path()?, operation.value());
                self.check_depth(path, value, depth::of(value))?;
                self.add(path, value.clone()).map_err(|failure| {
                    failure.of(
                        || format!("add operation does not apply: doc is missing path: \"{}\"", path.text),
                        || format!("error in add for path: '{}'", path.text),
                    )
                })
            }
            "remove" => {
                let path = operation.path()?;
                self.remove(path).map(drop).map_err(|failure| {
                    failure.of(
                        || format!("remove operation does not apply: doc is missing path: \"{}\"", path.text),
                        || format!("error in remove for path: '{}'", path.text),
                    )
                })
            }
            "replace" => {
                let (path, value) = (operation.path()?, operation.value());
                self.check_depth(path, value, depth::of(value))?;
                self.replace(path, value)
            }
            "move" => self.perform_move(operation),
            "copy" => self.perform_copy(operation),
            "test" => self.test(operation),
            other => Err(rejected(format!("Unexpected kind: {other}"))),
        }
    }

    fn perform_move(&mut self, operation: &Operation<'_>) -> Result<(), PatchError> {
        let from = operation.from()?;
        let deepest = self.depth.saturating_sub(from.tokens.len());
        let value = self.remove(from).map_err(|failure| {
            failure.of(
                || format!("move operation does not apply: doc is missing from path: {}", from.text),
                || format!("error in move for path: '{}'", from.tokens.last().map_or("", AsRef::as_ref)),
            )
        })?;
        let path = operation.path()?;
        self.check_depth(path, &value, deepest)?;
        self.add(path, value).map_err(|failure| {
            failure.of(
                || format!("move operation does not apply: doc is missing destination path: {}", path.text),
                || format!("error in move for path: '{}'", path.text),
            )
        })
    }

    /// Performs a copy. A field that is missing is copied as null, as in kube-apiserver's library.
    fn perform_copy(&mut self, operation: &Operation<'_>) -> Result<(), PatchError> {
        let from = operation.from()?;
        let deepest = self.depth.saturating_sub(from.tokens.len());
        let value = self.get(from).cloned().map_err(|failure| {
            failure.of(
                || format!("copy operation does not apply: doc is missing from path: {}", from.text),
                || format!("error in copy for from: '{}'", from.text),
            )
        })?;
        let path = operation.path()?;
        self.copied = self.copied.saturating_add(value.to_string().len());
        if self.copied > COPY_LIMIT {
            return Err(rejected(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit \
                 {COPY_LIMIT}",
                self.copied
            )));
        }
        self.check_depth(path, &value, deepest)?;
        self.add(path, value).map_err(|failure| {
            failure.of(
                || format!("copy operation does not apply: doc is missing destination path: {}", path.text),
                || "error while adding value during copy".to_owned(),
            )
        })
    }

    fn test(&self, operation: &Operation<'_>) -> Result<(), PatchError> {
        let path = operation.path()?;
        let found = if path.text.is_empty() { Ok(&self.root) } else { self.get(path) };
        let found = found.map_err(|failure| {
            failure.of(
                || format!("test operation does not apply: is missing path: {}", path.text),
                || format!("error in test for path: '{}'", path.text),
            )
        })?;
        if is_equal(found, operation.value()) {
            return Ok(());
        }
        Err(PatchError::TestFailed(format!("testing value {} failed: test failed", path.text)))
    }

    /// Returns the list or object that contains the target of `path`, and the last token.
    fn parent<'p>(&mut self, path: &'p Pointer<'_>) -> Result<(&mut Value, &'p str), Failure> {
        let (last, above) = path.tokens.split_last().ok_or(Failure::Missing)?;
        let mut place = &mut self.root;
        for token in above {
            place = match place {
                Value::Object(fields) => fields.get_mut(token.as_ref()),
                Value::Array(items) => existing(token, items.len()).ok().and_then(|at| items.get_mut(at)),
                _ => None,
            }
            .ok_or(Failure::Missing)?;
        }
        if place.is_object() || place.is_array() { Ok((place, last)) } else { Err(Failure::Missing) }
    }

    /// Returns a value, which is null if its object doesn't have the field.
    fn get(&self, path: &Pointer<'_>) -> Result<&Value, Failure> {
        let (last, above) = path.tokens.split_last().ok_or(Failure::Missing)?;
        let place = above.iter().try_fold(&self.root, |place, token| match place {
            Value::Object(fields) => fields.get(token.as_ref()),
            Value::Array(items) => existing(token, items.len()).ok().and_then(|at| items.get(at)),
            _ => None,
        });
        match place {
            Some(Value::Object(fields)) => Ok(fields.get(last.as_ref()).unwrap_or(&Value::Null)),
            Some(Value::Array(items)) => {
                let at = existing(last, items.len()).map_err(Failure::Invalid)?;
                Ok(items.get(at).unwrap_or(&Value::Null))
            }
            _ => Err(Failure::Missing),
        }
    }

    fn add(&mut self, path: &Pointer<'_>, value: Value) -> Result<(), Failure> {
        match self.parent(path)? {
            (Value::Object(fields), name) => {
                fields.insert(name.into(), value);
                Ok(())
            }
            (Value::Array(items), token) => {
                let at = place(token, items.len()).map_err(Failure::Invalid)?;
                let shifted = items.len().saturating_sub(at);
                items.insert(at, value);
                self.charge(shifted).map_err(Failure::Limit)
            }
            _ => Err(Failure::Missing),
        }
    }

    fn remove(&mut self, path: &Pointer<'_>) -> Result<Value, Failure> {
        match self.parent(path)? {
            (Value::Object(fields), name) => fields
                .remove(name)
                .ok_or_else(|| Failure::Invalid(format!("Unable to remove nonexistent key: {name}: missing value"))),
            (Value::Array(items), token) => {
                let at = existing(token, items.len()).map_err(Failure::Invalid)?;
                let shifted = items.len().saturating_sub(at);
                let removed = items.remove(at);
                self.charge(shifted).map_err(Failure::Limit)?;
                Ok(removed)
            }
            _ => Err(Failure::Missing),
        }
    }

    fn replace(&mut self, path: &Pointer<'_>, value: &Value) -> Result<(), PatchError> {
        if path.text.is_empty() {
            if !value.is_object() && !value.is_array() {
                return Err(rejected("replace operation value must be object or array: %!w(<nil>)"));
            }
            self.root = value.clone();
            return Ok(());
        }
        let parent = self.parent(path).map_err(|failure| {
            failure.of(|| format!("replace operation does not apply: doc is missing path: {}", path.text), String::new)
        })?;
        let place = match parent {
            // As in kube-apiserver's library, a field that is missing is added.
            (Value::Object(fields), name) => Some(fields.entry(name).or_insert(Value::Null)),
            (Value::Array(items), token) => existing(token, items.len()).ok().and_then(|at| items.get_mut(at)),
            _ => None,
        };
        let why =
            || rejected(format!("replace operation does not apply: doc is missing key: {}: missing value", path.text));
        *place.ok_or_else(why)? = value.clone();
        Ok(())
    }

    /// Rejects a `value` of at most `deepest` levels if it would make the document too deep. Visits the value only if
    /// the bound isn't sufficient.
    fn check_depth(&mut self, path: &Pointer<'_>, value: &Value, deepest: usize) -> Result<(), PatchError> {
        let above = path.tokens.len();
        let mut depth = above.saturating_add(deepest);
        if depth > depth::LIMIT {
            let (exact, visited) = depth::measure(value);
            self.charge(visited)?;
            depth = above.saturating_add(exact);
        }
        if depth > depth::LIMIT {
            return Err(PatchError::Rejected(format!(
                "{:?}: the document would nest deeper than {} levels",
                path.text,
                depth::LIMIT
            )));
        }
        self.depth = self.depth.max(depth);
        Ok(())
    }

    fn charge(&mut self, work: usize) -> Result<(), PatchError> {
        self.work = self.work.saturating_add(work);
        if self.work > WORK_LIMIT {
            let why = format!("the operations of a JSON patch may shift at most {WORK_LIMIT} list items");
            return Err(PatchError::TooLarge(why));
        }
        Ok(())
    }
}

/// Parses the index of a list as Go does: with a sign and leading zeros.
fn index(token: &str) -> Result<i64, String> {
    let parsed = token.parse::<i64>();
    parsed.map_err(|why| {
        let why = match why.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.Atoi: parsing {token:?}: {why}")
    })
}

/// Returns the position of an existing item. A negative index counts from the end, as in kube-apiserver's library.
fn existing(token: &str, length: usize) -> Result<usize, String> {
    let at = index(token)?;
    let end = i64::try_from(length).unwrap_or(i64::MAX);
    let position = if at < 0 { at.checked_add(end) } else { Some(at).filter(|at| *at < end) };
    let position = position.and_then(|position| usize::try_from(position).ok());
    position.ok_or_else(|| format!("Unable to access invalid index: {at}: invalid index referenced"))
}

/// Returns the position at which an item is inserted: at most the end, which `-` and -1 mean.
fn place(token: &str, length: usize) -> Result<usize, String> {
    if token == "-" {
        return Ok(length);
    }
    index(token).map_err(|why| format!("value was not a proper array index: '{token}': {why}"))?;
    existing(token, length.saturating_add(1))
}

/// Compares a value of the object with one of the patch, as Kubernetes does: `1.0` in the object is `1` in the patch,
/// but not the other way about.
fn is_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        // Kubernetes' library compares the texts. That of the object is as Go writes it, without a fraction of zero.
        (Value::Number(_), Value::Number(_)) => left == right || written(left) == right.to_string().into_bytes(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| is_equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let same = |(name, value): (&String, &Value)| right.get(name).is_some_and(|other| is_equal(value, other));
            left.len() == right.len() && left.iter().all(same)
        }
        _ => left == right,
    }
}

/// Returns a value as Go writes it.
fn written(value: &Value) -> Vec<u8> {
    let mut text = Vec::new();
    go_json::write(value, &mut text);
    text
}

#[cfg(test)]
mod tests;
