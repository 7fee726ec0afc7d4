//! Faults at any write of an operator, with or without a crash.

use std::time::Duration;

use kubewright_cluster::faults::{Fault, Faults, Verb};
use tokio::{sync::oneshot, task::JoinHandle, time::sleep};

use super::{Operator, TestEnv, assert_quiet_for};
use crate::sim::Span;

/// A fault at one write of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// The operator crashes before the write takes effect, and is restarted.
    CrashBefore,
    /// The operator crashes after the write took effect, and is restarted.
    CrashAfter,
    /// The write doesn't reach the API server, and the operator gets no response.
    LostRequest,
    /// The write takes effect, and the operator gets no response.
    LostAnswer,
}

impl WriteFault {
    const ALL: [Self; 4] = [Self::CrashBefore, Self::CrashAfter, Self::LostRequest, Self::LostAnswer];

    fn is_crash(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter)
    }
}

/// An operator with one injected fault.
#[derive(Debug)]
pub struct FaultyOperator {
    /// The faults of its requests; no more faults after a crash.
    pub faults: Faults,
    fault: Fault,
    task: JoinHandle<Operator>,
    stop: oneshot::Sender<()>,
}

impl TestEnv {
    /// Starts an operator with a fault at its `nth` write, counted from 0. After a crash, none of its further writes
    /// reaches the API server.
    pub fn start_faulty(&self, nth: usize, kind: WriteFault) -> FaultyOperator {
        let faults = Faults::new();
        let rule = faults.on(Verb::WRITES, "*").skip(nth);
        let fault = match kind {
            WriteFault::CrashBefore | WriteFault::LostRequest => rule.lose_request(),
            WriteFault::CrashAfter | WriteFault::LostAnswer => rule.lose_response(),
        };
        if kind.is_crash() {
            faults.on(Verb::WRITES, "*").skip(nth).always().lose_request();
        }
        let (stop, mut stopped) = oneshot::channel();
        let (env, requests, injected) = (self.clone(), faults.clone(), fault.clone());
        let task = tokio::spawn(async move {
            let first = env.start(&requests);
            while !(kind.is_crash() && injected.hits() > 0) {
                if stopped.try_recv().is_ok() {
                    return first;
                }
                sleep(Duration::from_millis(100)).await;
            }
            first.kill().await;
            requests.clear();
            let second = env.start(&requests);
            let _ = stopped.await;
            second
        });
        FaultyOperator { faults, fault, task, stop }
    }
}

impl FaultyOperator {
    /// Stops the operator, and returns whether the fault has occurred.
    async fn stop(self) -> bool {
        let _ = self.stop.send(());
        self.task.await.unwrap().stop().await;
        self.fault.hits() > 0
    }
}

/// The environment variable that enables every kind of fault at every write, which takes four times as long.
const EXHAUSTIVE: &str = "KUBEWRIGHT_EXHAUSTIVE";

/// Runs a function in the role of the user once for each write of the operator, in a fresh environment each time: the
/// first run has a fault at the first write, the second run at the second write, and so on until there is no such
/// write. After each run the operator must have nothing left to write.
///
/// The kinds of faults are used in turn; with `KUBEWRIGHT_EXHAUSTIVE` set, all runs are repeated for each kind.
///
/// Returns the number of writes that had a fault.
pub async fn with_a_fault_at_each_write(new: impl AsyncFn() -> TestEnv, user: impl AsyncFn(&TestEnv)) -> usize {
    if std::env::var_os(EXHAUSTIVE).is_none_or(|value| value.is_empty()) {
        return run_each(&new, &user, |nth| WriteFault::ALL[nth % WriteFault::ALL.len()]).await;
    }
    let mut fewest = usize::MAX;
    for kind in WriteFault::ALL {
        fewest = fewest.min(run_each(&new, &user, |_| kind).await);
    }
    fewest
}

async fn run_each(
    new: &impl AsyncFn() -> TestEnv,
    user: &impl AsyncFn(&TestEnv),
    kind: impl Fn(usize) -> WriteFault,
) -> usize {
    for nth in 0.. {
        let env = new().await;
        let operator = env.start_faulty(nth, kind(nth));
        user(&env).await;
        sleep(1.minutes()).await;
        assert_quiet_for(&operator.faults, 10.minutes()).await;
        if !operator.stop().await {
            return nth;
        }
    }
    unreachable!("each life has an end")
}
