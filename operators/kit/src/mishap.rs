//! Any write goes wrong, with the operator's death or without.

use std::time::Duration;

use kubewright_cluster::faults::{Fault, Faults, Verb};
use tokio::{sync::oneshot, task::JoinHandle, time::sleep};

use crate::{Operator, World, minutes, world::assert_quiet_for};

/// How one write of the operator goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The operator dies before the write has any effect, and is started again.
    DiesBefore,
    /// The operator dies after the write took effect, and is started again.
    DiesAfter,
    /// The API server never sees the write, and the operator gets no answer.
    LosesRequest,
    /// The write takes effect, and the operator gets no answer.
    LosesAnswer,
}

impl Mishap {
    const ALL: [Self; 4] = [Self::DiesBefore, Self::DiesAfter, Self::LosesRequest, Self::LosesAnswer];

    fn is_death(self) -> bool {
        matches!(self, Self::DiesBefore | Self::DiesAfter)
    }
}

/// An operator with which one mishap will happen.
pub struct Unlucky {
    /// What its requests meet. After a death: nothing.
    pub faults: Faults,
    mishap: Fault,
    life: JoinHandle<Operator>,
    stop: oneshot::Sender<()>,
}

impl World {
    /// Starts an operator whose `nth` write, counted from 0, goes wrong. From one that dies nothing arrives after that.
    pub fn start_unlucky(&self, nth: usize, mishap: Mishap) -> Unlucky {
        let faults = Faults::new();
        let rule = faults.on(Verb::WRITES, "*").skip(nth);
        let fault = match mishap {
            Mishap::DiesBefore | Mishap::LosesRequest => rule.lose_request(),
            Mishap::DiesAfter | Mishap::LosesAnswer => rule.lose_answer(),
        };
        if mishap.is_death() {
            faults.on(Verb::WRITES, "*").skip(nth).always().lose_request();
        }
        let (stop, mut stopped) = oneshot::channel();
        let (world, requests, death) = (self.clone(), faults.clone(), fault.clone());
        let life = tokio::spawn(async move {
            let first = world.start(&requests);
            while !(mishap.is_death() && death.hits() > 0) {
                if stopped.try_recv().is_ok() {
                    return first;
                }
                sleep(Duration::from_millis(100)).await;
            }
            first.kill().await;
            requests.clear();
            let second = world.start(&requests);
            let _ = stopped.await;
            second
        });
        Unlucky { faults, mishap: fault, life, stop }
    }
}

impl Unlucky {
    /// Stops it, and tells whether the mishap had happened.
    async fn stop(self) -> bool {
        let _ = self.stop.send(());
        self.life.await.unwrap().stop().await;
        self.mishap.hits() > 0
    }
}

/// The environment variable that has every fault tried at every write, which takes four times as long. `cargo xtask test --all` sets it.
const EXHAUSTIVE: &str = "KUBEWRIGHT_EXHAUSTIVE";

/// Runs a scenario once for each write of the operator, in a fresh world each time: the first run has a fault at the first write, the second
/// at the second, and so on, until there is no such write. At the end of each run the operator must have nothing more to write.
///
/// The writes have the faults in turn; with [`EXHAUSTIVE`] set, the whole is repeated for each fault.
///
/// Returns the number of writes that had a fault.
pub async fn go_wrong_everywhere(new: impl AsyncFn() -> World, play: impl AsyncFn(&World)) -> usize {
    if std::env::var_os(EXHAUSTIVE).is_none_or(|value| value.is_empty()) {
        return go_wrong(&new, &play, |nth| Mishap::ALL[nth % Mishap::ALL.len()]).await;
    }
    let mut fewest = usize::MAX;
    for mishap in Mishap::ALL {
        fewest = fewest.min(go_wrong(&new, &play, |_| mishap).await);
    }
    fewest
}

async fn go_wrong(
    new: &impl AsyncFn() -> World,
    play: &impl AsyncFn(&World),
    mishap: impl Fn(usize) -> Mishap,
) -> usize {
    for nth in 0.. {
        let world = new().await;
        let operator = world.start_unlucky(nth, mishap(nth));
        play(&world).await;
        sleep(minutes(1)).await;
        assert_quiet_for(&operator.faults, minutes(10)).await;
        if !operator.stop().await {
            return nth;
        }
    }
    unreachable!("a scenario has an end")
}
