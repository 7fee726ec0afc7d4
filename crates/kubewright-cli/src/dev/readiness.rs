//! Waiting until an operator reconciles, according to its traces, or to its readiness probe if it keeps no traces.

use std::time::Duration;

use futures::{FutureExt, future::BoxFuture};
use tokio::time::sleep;

use crate::explain::is_reconciling;

/// The time between two requests to the operator.
const INTERVAL: Duration = Duration::from_millis(10);

/// Completes when the operator that serves probes at `url` has started to reconcile. Never completes if it does not.
pub(super) fn reconciling(url: String) -> BoxFuture<'static, ()> {
    async move {
        while !is_reconciling(&url).await.is_ok_and(|is| is) {
            sleep(INTERVAL).await;
        }
    }
    .boxed()
}
