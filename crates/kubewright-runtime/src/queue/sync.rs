//! What the shared queue waits with. The tests of interleavings put others in their place.

use std::time::Duration;

use futures::FutureExt;
pub(super) use parking_lot::Mutex;
pub(super) use tokio::sync::Notify;

/// Waits for the bell, or for as long. All rings up to its return are heard as one: whoever waits looks after that.
pub(super) async fn wait(bell: &Notify, longest: Option<Duration>) {
    match longest {
        // A timeout is one of the two things waited for.
        Some(longest) => drop(tokio::time::timeout(longest, bell.notified()).await),
        None => bell.notified().await,
    }
    // An event rings twice, for the key that it wakes and for those that wait for what it shows.
    let _ = bell.notified().now_or_never();
}
