//! JSON paths in CRDs: for printer columns, selectable fields and the scale subresource.
//!
//! The syntax is that of <https://kubernetes.io/docs/reference/kubectl/jsonpath/>, limited to a single path, without
//! surrounding text and `range`.

mod parse;

use std::{cmp::Ordering, fmt};

use serde_json::{Map, Value};

/// The maximum number of matches of [`JsonPath::find`], so that no path turns a small object into a large response.
const MATCH_LIMIT: usize = 10_000;

/// A parsed path. `Display` returns the original text.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    text: String,
    steps: Vec<Step>,
}

/// The error that a path is malformed or can't be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The text is not a path.
    #[error("invalid JSON path {path:?}: {why} at character {at}")]
    Syntax {
        /// The whole text.
        path: String,
        /// The syntax error.
        why: &'static str,
        /// The offset of the error in bytes, from 0.
        at: usize,
    },
    /// The path has steps other than field names, so it can't be set.
    #[error("cannot set {0}: only paths of plain field names can be set")]
    NotSimple(String),
    /// A value on the path is not an object.
    #[error("cannot set {path}: {field} is not an object")]
    NotAnObject {
        /// The whole path.
        path: String,
        /// The field whose value is not an object.
        field: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: usize,
    },
    All,
    /// The value itself and all values below it.
    Descend,
    Filter(Filter),
    Union(Vec<Step>),
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Operand,
    /// The comparison. Without it, the filter tests that the left side exists.
    comparison: Option<(Comparison, Operand)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Path(Vec<Step>),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Parses `.spec.replicas`, `.status.conditions[?(@.type=="Ready")].status`, `.metadata.labels['a.b/c']`, …
    /// Surrounding braces and a leading `$` are allowed.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        Ok(Self { text: text.into(), steps: parse::steps(text)? })
    }

    /// Returns all values at this path, in document order.
    pub fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        follow(&self.steps, root)
    }

    /// Returns the first value at this path.
    pub fn first<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        self.find(root).into_iter().next()
    }

    /// Returns the field names, if the path consists only of field names, such as `.spec.replicas`.
    pub fn fields(&self) -> Option<Vec<&str>> {
        self.steps.iter().map(|step| if let Step::Field(name) = step { Some(name.as_str()) } else { None }).collect()
    }

    /// Sets the value at a path of field names, and creates missing objects on the path.
    pub fn set(&self, root: &mut Value, value: Value) -> Result<(), PathError> {
        let fields = self.fields().ok_or_else(|| PathError::NotSimple(self.text.clone()))?;
        let mut place = root;
        for field in fields {
            if place.is_null() {
                *place = Value::Object(Map::new());
            }
            let Value::Object(object) = place else {
                return Err(PathError::NotAnObject { path: self.text.clone(), field: field.into() });
            };
            place = object.entry(field).or_insert(Value::Null);
        }
        *place = value;
        Ok(())
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn follow<'a>(steps: &[Step], root: &'a Value) -> Vec<&'a Value> {
    let mut places = vec![root];
    for step in steps {
        let mut next = Vec::new();
        for place in places {
            take(step, place, &mut next);
            if next.len() >= MATCH_LIMIT {
                next.truncate(MATCH_LIMIT);
                break;
            }
        }
        places = next;
    }
    places
}

fn take<'a>(step: &Step, place: &'a Value, next: &mut Vec<&'a Value>) {
    match (step, place) {
        (Step::Field(name), _) => next.extend(place.get(name)),
        (Step::Index(index), Value::Array(items)) => {
            next.extend(position(*index, items.len()).and_then(|at| items.get(at)));
        }
        (Step::Slice { start, end, step }, Value::Array(items)) => {
            let clamp =
                |at: i64| if at < 0 { items.len() as i64 + at } else { at }.clamp(0, items.len() as i64) as usize;
            let (start, end) = (start.map_or(0, clamp), end.map_or(items.len(), clamp));
            next.extend(items.get(start..end).unwrap_or_default().iter().step_by(*step));
        }
        (Step::All, Value::Array(items)) => next.extend(items),
        (Step::All, Value::Object(fields)) => next.extend(fields.values()),
        (Step::Descend, _) => descend(place, next),
        (Step::Filter(filter), Value::Array(items)) => next.extend(items.iter().filter(|item| filter.holds(item))),
        (Step::Filter(filter), Value::Object(fields)) => {
            next.extend(fields.values().filter(|value| filter.holds(value)));
        }
        (Step::Union(steps), _) => steps.iter().for_each(|step| take(step, place, next)),
        _ => {}
    }
}

fn position(index: i64, length: usize) -> Option<usize> {
    usize::try_from(if index < 0 { length as i64 + index } else { index }).ok()
}

/// Visits values depth first with an explicit stack, so that a deep document can't overflow the call stack.
fn descend<'a>(root: &'a Value, found: &mut Vec<&'a Value>) {
    let mut stack = vec![root];
    while let Some(value) = stack.pop() {
        found.push(value);
        match value {
            Value::Array(items) => stack.extend(items.iter().rev()),
            Value::Object(fields) => stack.extend(fields.values().rev()),
            _ => {}
        }
        if found.len() >= MATCH_LIMIT {
            return;
        }
    }
}

impl Filter {
    fn holds(&self, item: &Value) -> bool {
        let left = self.left.values(item);
        let Some((comparison, right)) = &self.comparison else { return !left.is_empty() };
        let (Some(left), Some(right)) = (left.first(), right.values(item).first().copied()) else { return false };
        comparison.holds(left, right)
    }
}

impl Operand {
    fn values<'a>(&'a self, item: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Path(steps) => follow(steps, item),
            Self::Literal(value) => vec![value],
        }
    }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::Number(left), Value::Number(right)) => {
                left.as_f64().zip(right.as_f64()).and_then(|(left, right)| left.partial_cmp(&right))
            }
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            _ => (left == right).then_some(Ordering::Equal),
        };
        match self {
            Self::Equal => order == Some(Ordering::Equal),
            Self::NotEqual => order != Some(Ordering::Equal),
            Self::Less => order == Some(Ordering::Less),
            Self::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Self::Greater => order == Some(Ordering::Greater),
            Self::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

#[cfg(test)]
mod tests;
