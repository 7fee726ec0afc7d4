//! Seeing that an operator works: by its traces, or if it keeps none, by its readiness.

use std::time::Duration;

use futures::{FutureExt, future::BoxFuture};
use tokio::time::sleep;

use crate::explain::is_working;

/// How often an operator is asked.
const INTERVAL: Duration = Duration::from_millis(10);

/// Ends when the operator whose probes are answered there has begun to reconcile; never, if it doesn't.
pub(super) fn working(probes: String) -> BoxFuture<'static, ()> {
    async move {
        while !is_working(&probes).await.is_ok_and(|is| is) {
            sleep(INTERVAL).await;
        }
    }
    .boxed()
}
