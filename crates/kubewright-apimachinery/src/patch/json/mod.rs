//! JSON patch ([RFC 6902](https://www.rfc-editor.org/rfc/rfc6902)): a list of operations on JSON pointers, which apply
//! all or nothing.
//!
//! The `json-patch` crate isn't used, because the limits must be checked between operations and some results follow
//! kube-apiserver instead of the RFC: an absent value is null, which an absent field equals, `1` and `1.0` are equal, a `replace` adds
//! a field that is missing, a `copy` of one is null, negative indexes count from the end, and only a `replace` is possible for the
//! whole document.

use std::borrow::Cow;

use serde_json::Value;

use super::PatchError;
use crate::{depth, types::json_type};

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

enum Operation<'a> {
    Add(Pointer<'a>, &'a Value),
    Remove(Pointer<'a>),
    Replace(Pointer<'a>, &'a Value),
    Move(Pointer<'a>, Pointer<'a>),
    Copy(Pointer<'a>, Pointer<'a>),
    Test(Pointer<'a>, &'a Value),
}

/// A JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)).
struct Pointer<'a> {
    text: &'a str,
    tokens: Vec<Cow<'a, str>>,
}

fn malformed(why: impl Into<String>) -> PatchError {
    PatchError::Malformed(why.into())
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
    if !operation.is_object() && !operation.is_null() {
        return Err(malformed("a JSON patch operation must be an object"));
    }
    for member in ["op", "path", "from"] {
        if let Some(other) = operation.get(member).filter(|value| !value.is_string() && !value.is_null()) {
            return Err(malformed(format!(
                "error decoding patch: json: cannot unmarshal {} into Go struct field jsonPatchOp.{member} of type string",
                json_type(other)
            )));
        }
    }
    let text = |member: &str| operation.get(member).and_then(Value::as_str);
    let kind = text("op").ok_or_else(|| PatchError::Rejected("a JSON patch operation must have an op".into()))?;
    let pointer = |member: &str| {
        let missing = || PatchError::Rejected(format!("JSON patch {kind} operation must have a {member}"));
        Pointer::parse(text(member).ok_or_else(missing)?)
    };
    // An absent value is null, as in kube-apiserver's library.
    let value = operation.get("value").unwrap_or(&Value::Null);
    Ok(match kind {
        "add" => Operation::Add(pointer("path")?, value),
        "remove" => Operation::Remove(pointer("path")?),
        "replace" => Operation::Replace(pointer("path")?, value),
        "move" => Operation::Move(pointer("from")?, pointer("path")?),
        "copy" => Operation::Copy(pointer("from")?, pointer("path")?),
        "test" => Operation::Test(pointer("path")?, value),
        _ => return Err(PatchError::Rejected(format!("Unexpected kind: {kind}"))),
    })
}

impl<'a> Pointer<'a> {
    fn parse(text: &'a str) -> Result<Self, PatchError> {
        let tokens = match text.strip_prefix('/') {
            Some(rest) => rest.split('/').map(unescape).collect(),
            None if text.is_empty() => Vec::new(),
            // kube-apiserver's library ignores what precedes the first slash.
            None if text.contains('/') => text.split('/').skip(1).map(unescape).collect(),
            None => return Err(PatchError::Rejected(format!("JSON pointer {text:?} must begin with a slash"))),
        };
        Ok(Self { text, tokens })
    }
}

fn unescape(token: &str) -> Cow<'_, str> {
    // The order matters: `~01` means `~1`, not `/`.
    if token.contains('~') { token.replace("~1", "/").replace("~0", "~").into() } else { token.into() }
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
        match operation {
            Operation::Add(path, value) => {
                self.check_depth(path, value, depth::of(value))?;
                self.add("add", path, (*value).clone())
            }
            Operation::Remove(path) => self.remove("remove", path).map(drop),
            Operation::Replace(path, value) => {
                self.check_depth(path, value, depth::of(value))?;
                self.replace(path, value)
            }
            Operation::Move(from, path) => {
                if is_below(&path.tokens, &from.tokens) {
                    let (from, path) = (from.text, path.text);
                    return Err(PatchError::Rejected(format!("move operation: {path:?} is inside {from:?}")));
                }
                let deepest = self.depth.saturating_sub(from.tokens.len());
                let value = self.remove("move", from)?;
                self.check_depth(path, &value, deepest)?;
                self.add("move", path, value)
            }
            Operation::Copy(from, path) => {
                let deepest = self.depth.saturating_sub(from.tokens.len());
                let value = self.copied_value(from)?;
                self.copied = self.copied.saturating_add(value.to_string().len());
                if self.copied > COPY_LIMIT {
                    return Err(PatchError::Rejected(format!(
                        "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the \
                         limit {COPY_LIMIT}",
                        self.copied
                    )));
                }
                self.check_depth(path, &value, deepest)?;
                self.add("copy", path, value)
            }
            Operation::Test(path, expected) => {
                let found = self.get("test", path);
                match found {
                    Ok(found) if is_equal(found, expected) => Ok(()),
                    Err(_) if expected.is_null() => Ok(()),
                    Ok(_) => Err(PatchError::TestFailed(format!("testing value {} failed", path.text))),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Returns the list or object that contains the target of `path`, and the last token.
    fn parent<'p>(&mut self, what: &str, path: &'p Pointer<'_>) -> Result<(&mut Value, &'p str), PatchError> {
        let Some((last, above)) = path.tokens.split_last() else { return Err(missing(what, path)) };
        let mut place = &mut self.root;
        for token in above {
            place = match place {
                Value::Object(fields) => fields.get_mut(token.as_ref()),
                Value::Array(items) => index(token, items.len()).and_then(|at| items.get_mut(at)),
                _ => None,
            }
            .ok_or_else(|| missing(what, path))?;
        }
        Ok((place, last))
    }

    fn get(&self, what: &str, path: &Pointer<'_>) -> Result<&Value, PatchError> {
        path.tokens.iter().try_fold(&self.root, |place, token| {
            match place {
                Value::Object(fields) => fields.get(token.as_ref()),
                Value::Array(items) => index(token, items.len()).and_then(|at| items.get(at)),
                _ => None,
            }
            .ok_or_else(|| missing(what, path))
        })
    }

    /// Returns the value to copy. As in kube-apiserver's library, a field that is missing is null.
    fn copied_value(&mut self, from: &Pointer<'_>) -> Result<Value, PatchError> {
        match self.parent("copy", from)? {
            (Value::Object(fields), name) => Ok(fields.get(name).cloned().unwrap_or_default()),
            _ => self.get("copy", from).cloned(),
        }
    }

    /// Adds a value. As in kube-apiserver's library, the whole document can only be replaced.
    fn add(&mut self, what: &str, path: &Pointer<'_>, value: Value) -> Result<(), PatchError> {
        match self.parent(what, path)? {
            (Value::Object(fields), name) => {
                fields.insert(name.into(), value);
                Ok(())
            }
            (Value::Array(items), token) => {
                // A negative index counts from the end of the list with the new item.
                let at = if token == "-" { Some(items.len()) } else { index(token, items.len().saturating_add(1)) };
                let at = at.filter(|at| *at <= items.len()).ok_or_else(|| {
                    let path = path.text;
                    PatchError::Rejected(format!("{what} operation: {path:?}: Unable to access invalid index: {token}"))
                })?;
                let shifted = items.len() - at;
                items.insert(at, value);
                self.charge(shifted)
            }
            _ => Err(missing(what, path)),
        }
    }

    fn remove(&mut self, what: &str, path: &Pointer<'_>) -> Result<Value, PatchError> {
        let mut shifted = 0;
        let removed = match self.parent(what, path)? {
            (Value::Object(fields), name) => fields.remove(name),
            (Value::Array(items), token) => index(token, items.len()).filter(|at| *at < items.len()).map(|at| {
                shifted = items.len() - at;
                items.remove(at)
            }),
            _ => None,
        };
        self.charge(shifted)?;
        removed.ok_or_else(|| missing(what, path))
    }

    fn replace(&mut self, path: &Pointer<'_>, value: &Value) -> Result<(), PatchError> {
        if path.tokens.is_empty() {
            self.root = value.clone();
            return Ok(());
        }
        let place = match self.parent("replace", path)? {
            // As in kube-apiserver's library, a field that is missing is added.
            (Value::Object(fields), name) => Some(fields.entry(name).or_insert(Value::Null)),
            (Value::Array(items), token) => index(token, items.len()).and_then(|at| items.get_mut(at)),
            _ => None,
        };
        *place.ok_or_else(|| missing("replace", path))? = value.clone();
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

fn missing(what: &str, path: &Pointer<'_>) -> PatchError {
    PatchError::Rejected(format!(
        "{what} operation does not apply: doc is missing path: {:?}: missing value",
        path.text
    ))
}

/// Parses an index of a list. As in kube-apiserver's library, a negative one counts from the end.
fn index(token: &str, length: usize) -> Option<usize> {
    let index: isize = token.parse().ok()?;
    match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => length.checked_sub(index.unsigned_abs()),
    }
}

/// Returns whether `path` leads into the target of `above`.
fn is_below(path: &[Cow<'_, str>], above: &[Cow<'_, str>]) -> bool {
    path.len() > above.len() && path.starts_with(above)
}

/// Compares values as JSON does: `1` and `1.0` are the same number.
fn is_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
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

#[cfg(test)]
mod tests;
