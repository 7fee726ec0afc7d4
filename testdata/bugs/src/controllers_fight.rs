//! Two controllers of one field.
//!
//! One controller of the program sets the level of a config map by the spec, the other one raises it for debugging;
//! both force what they want. Each write wakes the other one.
//!
//! The fixed program has one controller for the field, and the other one reports what it wishes.

use crate::kit::*;

bug!("two controllers fight over a field", [
    "https://github.com/cryostatio/cryostat-operator/issues/524",
    "https://github.com/open-telemetry/opentelemetry-operator/pull/833",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Logger", namespaced)]
pub(crate) struct LoggerSpec {
    level: String,
    debug: bool,
}

struct Operator {
    debugs: bool,
    fixed: bool,
}

impl Reconciler<Logger> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, logger: &Logger, ctx: &Context<Logger>) -> Result<Action, ClientError> {
        let wished = if logger.spec.debug { "debug" } else { &logger.spec.level };
        let (level, is_mine) = match (self.fixed, self.debugs) {
            (true, debugs) => (wished, !debugs),
            (false, true) => ("debug", logger.spec.debug),
            (false, false) => (&*logger.spec.level, true),
        };
        let known = ctx.get::<ConfigMap>(ctx.key())?;
        if is_mine && known.is_none_or(|known| entry(&known, "level") != level) {
            ctx.apply_child(config_map(named(&logger.name_any()), "level", level)).force().await?;
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = |name: &str, debugs: bool| {
        Controller::<Logger>::new(Operator { debugs, fixed }).name(name).owns::<ConfigMap>()
    };
    manager.kind::<Logger>().controller(controller("logger", false)).controller(controller("debugger", true))
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Logger", "shop", json!({"level": "info", "debug": false}))).await;
    sim.until("it has a level", |world| world.get::<ConfigMap>("shop").is_some()).await;
    sim.edit::<Logger>("shop", json!({"spec": {"debug": true}})).await;
    sim.advance(1.hours()).await;
}
