//! Handling of panics: each is logged. A decision that panics concerns one object only, and a component is restarted.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use futures::FutureExt;
use kubewright_apimachinery::clock::SharedClock;

/// The delay before the first restart of a component. It doubles with each restart.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The longest delay before a restart. A component that has run for longer restarts after the first delay again.
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// Returns the result of `act`, or the message of its panic. `act` must leave what it changes usable if it panics.
pub(crate) fn catch<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(act)).map_err(|panic| message(&*panic))
}

/// Runs a task to its end. A panic is logged.
pub(crate) async fn log(task: impl Future<Output = ()>) {
    if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
        tracing::error!(message = message(&*panic), "a task of the cluster has panicked");
    }
}

/// Runs a component, and restarts it with back-off after a panic, as Kubernetes restarts a program that has crashed.
pub(crate) async fn restarting<F>(component: &'static str, clock: SharedClock, start: impl Fn() -> F)
where
    F: Future<Output = ()>,
{
    let mut delay = FIRST_DELAY;
    loop {
        let started = clock.monotonic();
        let Err(panic) = AssertUnwindSafe(start()).catch_unwind().await else { return };
        if clock.monotonic().saturating_sub(started) > LONGEST_DELAY {
            delay = FIRST_DELAY;
        }
        tracing::error!(message = message(&*panic), component, ?delay, "a component has panicked and is restarted");
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(LONGEST_DELAY);
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use jiff::Timestamp;
    use kubewright_apimachinery::clock::VirtualClock;
    use tokio::time::sleep;

    use super::*;

    #[test]
    fn the_message_of_a_panic_is_returned() {
        assert_eq!(catch(|| 1), Ok(1));
        assert_eq!(catch(|| -> () { panic!("too {}", "much") }), Err("too much".to_owned()));
        assert_eq!(catch(|| -> () { panic!("fixed") }), Err("fixed".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_component_is_restarted_with_back_off_until_it_ends() {
        let clock: SharedClock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
        let starts = RefCell::new(Vec::new());
        restarting("test", clock.clone(), || async {
            let number = starts.borrow().len();
            starts.borrow_mut().push(clock.monotonic().as_secs());
            match number {
                0..3 => panic!("at once"),
                3 => {
                    sleep(Duration::from_secs(100)).await;
                    panic!("after a while")
                }
                _ => {}
            }
        })
        .await;
        assert_eq!(starts.into_inner(), [0, 1, 3, 7, 108]);
    }
}
