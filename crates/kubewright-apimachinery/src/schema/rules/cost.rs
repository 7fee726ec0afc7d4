//! What a rule costs, and what may be spent.
//!
//! The interpreter counts nothing, so a rule's cost is bounded before it runs: each step counts one, and a step inside
//! a loop as often as the largest collection at hand could drive that loop. Kubernetes counts real steps, with the
//! same limits; a rule near them may pass there and not here.

use kube_cel::cel::{
    IdedExpr,
    common::ast::{EntryExpr, Expr, MapExpr, StructExpr, operators},
};
use serde_json::Value;

/// What one evaluation of one rule may cost.
const OF_RULE: u64 = 1_000_000;

/// What all rules of one object may cost together.
const OF_OBJECT: u64 = 10_000_000;

/// What is left to spend.
pub(super) struct Budget(u64);

impl Budget {
    pub(super) fn of_object() -> Self {
        Self(OF_OBJECT)
    }

    /// Whether nothing is left, and no further rule is to be evaluated.
    pub(super) fn is_spent(&self) -> bool {
        self.0 == 0
    }

    /// Spends what a rule costs. When that is too much, says so and leaves nothing.
    pub(super) fn spend(&mut self, cost: u64, rule: &str) -> Result<(), String> {
        let left = self.0.checked_sub(cost.max(1));
        match left {
            Some(left) if cost <= OF_RULE => {
                self.0 = left;
                Ok(())
            }
            _ if cost > OF_RULE => {
                self.0 = 0;
                Err(format!(
                    "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to \
                     call cost exceeds limit for rule: {rule}"
                ))
            }
            _ => {
                self.0 = 0;
                Err("validation failed due to running out of cost budget, no further validation rules will be run"
                    .into())
            }
        }
    }
}

/// The sizes of the largest things in a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Items of a list or fields of an object.
    collection: u64,
    /// Bytes of a text.
    text: u64,
}

impl Sizes {
    pub(super) fn of(value: &Value) -> Self {
        let mut sizes = Self::default();
        sizes.see(value);
        sizes
    }

    /// Of several values: the largest in any.
    pub(super) fn of_all<'v>(values: impl IntoIterator<Item = &'v Value>) -> Self {
        let mut sizes = Self::default();
        values.into_iter().for_each(|value| sizes.see(value));
        sizes
    }

    fn see(&mut self, value: &Value) {
        match value {
            Value::Array(items) => {
                self.collection = self.collection.max(items.len() as u64);
                items.iter().for_each(|item| self.see(item));
            }
            Value::Object(map) => {
                self.collection = self.collection.max(map.len() as u64);
                map.values().for_each(|field| self.see(field));
            }
            Value::String(text) => self.text = self.text.max(text.len() as u64),
            _ => {}
        }
    }
}

/// An upper bound of the steps.
pub(super) fn of(expression: &IdedExpr, sizes: &Sizes) -> u64 {
    let all = |inner: &mut dyn Iterator<Item = &IdedExpr>| {
        inner.fold(0u64, |sum, expression| sum.saturating_add(of(expression, sizes)))
    };
    match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) => 0,
        Expr::Ident(_) => 1,
        Expr::Select(select) => of(&select.operand, sizes).saturating_add(1),
        Expr::Call(call) => all(&mut call.target.as_deref().into_iter().chain(&call.args)).saturating_add(1),
        Expr::List(list) => all(&mut list.elements.iter()).saturating_add(1),
        Expr::Map(MapExpr { entries }) | Expr::Struct(StructExpr { entries, .. }) => {
            let inner = entries.iter().flat_map(|entry| match &entry.expr {
                EntryExpr::StructField(field) => [Some(&field.value), None],
                EntryExpr::MapEntry(entry) => [Some(&entry.key), Some(&entry.value)],
            });
            all(&mut inner.flatten()).saturating_add(1)
        }
        Expr::Comprehension(comprehension) => {
            let inside = all(&mut [&comprehension.loop_cond, &comprehension.loop_step].into_iter());
            let around =
                all(&mut [&comprehension.iter_range, &comprehension.accu_init, &comprehension.result].into_iter());
            inside.saturating_mul(rounds(&comprehension.iter_range, sizes)).saturating_add(around)
        }
    }
}

/// How often a loop over this may go round.
fn rounds(range: &IdedExpr, sizes: &Sizes) -> u64 {
    let derived = sizes.collection.max(sizes.text);
    match &range.expr {
        Expr::List(list) => list.elements.len() as u64,
        Expr::Map(map) => map.entries.len() as u64,
        Expr::Comprehension(inner) => rounds(&inner.iter_range, sizes),
        Expr::Call(call) if call.func_name != operators::INDEX => derived,
        _ => sizes.collection,
    }
}
