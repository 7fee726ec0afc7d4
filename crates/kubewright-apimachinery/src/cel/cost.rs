//! The cost of an evaluation and its limits.
//!
//! One unit corresponds to about one step. Limits and costs are those of kube-apiserver
//! (`k8s.io/apiserver/pkg/apis/cel`, `cel-go/interpreter/runtimecost.go`, `k8s.io/apiserver/pkg/cel/library/cost.go`).

use kube_cel::cel::{Value, objects::Key};

use super::associative::{Associative, items};

/// The cost limit of a single evaluation.
const PER_CALL: u64 = 1_000_000;

/// The cost limit of all evaluations that validate one object.
const PER_OBJECT: u64 = 10_000_000;

/// The cost limit of all match conditions of one webhook for one request.
const PER_MATCH_CONDITIONS: u64 = 2_500_000;

/// The number of units after which an evaluation of several expressions yields to other tasks. It takes at most some
/// tens of milliseconds, including the expression that is running, which is not interrupted.
const PER_TURN: u64 = 200_000;

/// The remaining units that several evaluations share.
#[derive(Debug)]
pub(crate) struct Budget {
    left: u64,
}

impl Budget {
    pub(crate) fn of_object() -> Self {
        Self { left: PER_OBJECT }
    }

    pub(crate) fn spent() -> Self {
        Self { left: 0 }
    }

    pub(super) fn of(left: u64) -> Self {
        Self { left }
    }

    pub(super) fn of_match_conditions() -> Self {
        Self { left: PER_MATCH_CONDITIONS }
    }

    /// Returns whether the budget is used up, so that no further expression is evaluated.
    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0
    }

    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Takes units. Returns false if there aren't as many.
    pub(super) fn spend(&mut self, units: u64) -> bool {
        let left = self.left.checked_sub(units);
        self.left = left.unwrap_or_default();
        left.is_some()
    }

    pub(super) fn meter(&self) -> Meter {
        Meter { spent: 0, limit: self.left.min(PER_CALL), rest: 0 }
    }

    pub(super) fn settle(&mut self, meter: &Meter) {
        self.left = self.left.saturating_sub(meter.spent);
    }

    /// Uses up the budget. Returns which limit was exceeded, in kube-apiserver's wording.
    pub(crate) fn exhaust(&mut self, rule: &str) -> String {
        let per_call = self.left >= PER_CALL;
        self.left = 0;
        if per_call {
            format!(
                "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call \
                 cost exceeds limit for rule: {rule}"
            )
        } else {
            "validation failed due to running out of cost budget, no further validation rules will be run".to_owned()
        }
    }
}

/// Decides when an evaluation of several expressions yields to other tasks.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    since: u64,
    /// True if it never yields.
    steady: bool,
}

impl Pace {
    /// Returns one that never yields, for few expressions.
    pub(crate) fn steady() -> Self {
        Self { steady: true, ..Self::default() }
    }

    /// Records the units spent, and yields once they reach `PER_TURN`.
    pub(crate) async fn spent(&mut self, units: u64) {
        self.since = self.since.saturating_add(units);
        if self.since >= PER_TURN && !self.steady {
            self.since = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// The error that the limit of an evaluation is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exceeded;

/// The units that one evaluation has spent.
#[derive(Debug)]
pub(super) struct Meter {
    spent: u64,
    limit: u64,
    /// Tenths of a unit that have not been charged yet.
    rest: u64,
}

impl Meter {
    #[cfg(test)]
    pub(super) fn new(limit: u64) -> Self {
        Self { spent: 0, limit, rest: 0 }
    }

    /// Creates a meter with the limit of a single evaluation.
    pub(super) fn per_call() -> Self {
        Self { spent: 0, limit: PER_CALL, rest: 0 }
    }

    pub(super) fn spent(&self) -> u64 {
        self.spent
    }

    /// Charges for the next step, before it is taken.
    pub(super) fn charge(&mut self, units: u64) -> Result<(), Exceeded> {
        self.spent = self.spent.saturating_add(units).min(self.limit.saturating_add(1));
        if self.spent > self.limit { Err(Exceeded) } else { Ok(()) }
    }

    /// Charges for bytes of text that are read or written.
    pub(super) fn charge_bytes(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.charge(tenth(bytes))
    }

    /// Charges for `value`, all values below it, and the bytes of strings.
    pub(super) fn charge_traversal(&mut self, value: &Value) -> Result<(), Exceeded> {
        match value {
            Value::String(text) => self.charge(tenth(text.len()).max(1)),
            Value::Bytes(bytes) => self.charge(tenth(bytes.len()).max(1)),
            Value::Map(map) => {
                self.charge(1)?;
                map.map.iter().try_for_each(|(key, value)| {
                    if let Key::String(key) = key {
                        self.charge_bytes(key.len())?;
                    }
                    self.charge_traversal(value)
                })
            }
            value => {
                self.charge(1)?;
                items(value).into_iter().flat_map(|items| items.iter()).try_for_each(|item| self.charge_traversal(item))
            }
        }
    }

    /// Compares two values. Charges a tenth of a unit for each pair of values and of bytes compared.
    pub(super) fn equal(&mut self, left: &Value, right: &Value) -> Result<bool, Exceeded> {
        let equal = self.compare(left, right)?;
        if self.rest > 0 {
            self.rest = 0;
            self.charge(1)?;
        }
        Ok(equal)
    }

    fn compare(&mut self, left: &Value, right: &Value) -> Result<bool, Exceeded> {
        self.charge_tenths(match (left, right) {
            (Value::String(left), Value::String(right)) => left.len().min(right.len()).max(1),
            (Value::Bytes(left), Value::Bytes(right)) => left.len().min(right.len()).max(1),
            _ => 1,
        })?;
        match (left, right) {
            (Value::Map(left), Value::Map(right)) => {
                if left.map.len() != right.map.len() {
                    return Ok(false);
                }
                // Compares all entries, so that the cost doesn't depend on their order.
                left.map.iter().try_fold(true, |equal, (key, left)| match right.get(key) {
                    Some(right) => Ok(self.compare(left, right)? && equal),
                    None => Ok(false),
                })
            }
            _ => match (items(left), items(right)) {
                (Some(of_left), Some(of_right)) => self.compare_lists(left, of_left, of_right),
                _ => Ok(left == right),
            },
        }
    }

    /// Compares two lists. The left one decides whether their order matters.
    fn compare_lists(&mut self, list: &Value, left: &[Value], right: &[Value]) -> Result<bool, Exceeded> {
        if left.len() != right.len() {
            return Ok(false);
        }
        let Some(list) = Associative::of(list) else { return self.compare_pairs(left.iter().zip(right)) };
        self.charge_tenths(right.len())?;
        match list.pairs(right) {
            Some(pairs) => self.compare_pairs(pairs.into_iter()),
            None => Ok(false),
        }
    }

    fn compare_pairs<'v>(&mut self, pairs: impl Iterator<Item = (&'v Value, &'v Value)>) -> Result<bool, Exceeded> {
        for (left, right) in pairs {
            if !self.compare(left, right)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn charge_tenths(&mut self, tenths: usize) -> Result<(), Exceeded> {
        self.rest = self.rest.saturating_add(tenths as u64);
        let units = self.rest / 10;
        self.rest %= 10;
        self.charge(units)
    }
}

/// Returns the cost of `bytes` bytes of text.
pub(super) fn tenth(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(10)
}

/// Returns the cost of matching a string against a regular expression, given their lengths.
pub(super) fn of_match(text: usize, pattern: usize) -> u64 {
    tenth(text.saturating_add(1)).saturating_mul((pattern as u64).div_ceil(4))
}
