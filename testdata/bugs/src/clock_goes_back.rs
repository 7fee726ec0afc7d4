//! A clock that goes back.
//!
//! The operator computes how long a lease has run, as an unsigned number. After a correction of the clock, or on
//! another node, the start is in the future, and the conversion fails: the run panics, again and again, until the time
//! has come.
//!
//! The fixed operator takes a negative duration for zero.

use jiff::Timestamp;

use crate::kit::*;

bug!("clock jumps back", [
    "https://github.com/tikv/tikv/pull/10569",
    "https://github.com/quartznet/quartznet/pull/3147",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Loan", namespaced, status = "LoanStatus")]
pub(crate) struct LoanSpec {
    seconds: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct LoanStatus {
    started: i64,
    expired: bool,
}

struct Operator {
    fixed: bool,
}

impl Operator {
    fn elapsed(&self, started: i64, now: Timestamp) -> u64 {
        let elapsed = u64::try_from(now.as_second() - started);
        if self.fixed { elapsed.unwrap_or(0) } else { elapsed.expect("the start is in the past") }
    }
}

impl Reconciler<Loan> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, loan: &Loan, ctx: &Context<Loan>) -> Result<Action, ClientError> {
        let now = ctx.now();
        let Some(status) = loan.status.clone() else {
            ctx.set_status(LoanStatus { started: now.as_second(), expired: false }).await?;
            return Ok(Action::await_change());
        };
        if status.expired {
            return Ok(Action::await_change());
        }
        if self.elapsed(status.started, now) >= loan.spec.seconds {
            ctx.set_status(LoanStatus { expired: true, ..status }).await?;
            return Ok(Action::await_change());
        }
        Ok(Action::requeue_after(Duration::from_secs(60)))
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Loan>().controller(Controller::<Loan>::new(Operator { fixed }))
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Loan", "book", json!({"seconds": 1200}))).await;
    sim.until("it has begun", |world| world.get::<Loan>("book").is_some_and(|loan| loan.status.is_some())).await;
    sim.advance(2.hours()).await;
}
