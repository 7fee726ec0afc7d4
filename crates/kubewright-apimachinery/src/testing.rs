//! Helpers for the crate's unit tests.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use proptest::prelude::*;
use serde_json::Value;

/// Generates JSON values of a few levels. The set of field names is so small that two values often share some.
pub(crate) fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..3).prop_map(Value::from),
        "[a-c~/]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c~/]{1,2}", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Returns the output of a future that only yields and never waits.
pub(crate) fn finish<T>(future: impl Future<Output = T>) -> T {
    finish_counting(future).0
}

/// Returns the output of such a future, and how often it yielded.
pub(crate) fn finish_counting<T>(future: impl Future<Output = T>) -> (T, usize) {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let mut yielded = 0;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return (output, yielded);
        }
        yielded += 1;
    }
}
