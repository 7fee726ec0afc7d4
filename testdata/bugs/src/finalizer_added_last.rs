//! A finalizer that is added after what it protects from leaking.
//!
//! The operator registers a device in another namespace, and then adds its finalizer. If it dies in between, and the
//! device is deleted before it is back, nothing holds the device until the registration is withdrawn.
//!
//! The fixed operator adds the finalizer first. (With `Reconciler::FINALIZER` the runtime does; operators that need
//! finalizers on some objects only do it by hand.)

use crate::kit::*;

bug!("finalizer added too late", [
    "https://github.com/Azure/azure-service-operator/issues/5633",
    "https://github.com/zalando/postgres-operator/pull/941",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Device", namespaced)]
pub(crate) struct DeviceSpec {
    serial: String,
}

struct Operator {
    fixed: bool,
}

const FINALIZER: &str = "bugs.kubewright.dev/registration";

fn registration(device: &Device) -> ObjectKey {
    ObjectKey::namespaced("registry", &format!("device-{}", device.name_any()))
}

impl Operator {
    async fn register(&self, device: &Device, ctx: &Context<Device>) -> Result<(), ClientError> {
        let key = registration(device);
        if ctx.get::<ConfigMap>(&key)?.is_none() && is_current(device, ctx).await? {
            let metadata = ObjectMeta { namespace: Some("registry".into()), ..named(key.name()) };
            ctx.apply(&config_map(metadata, "serial", &device.spec.serial)).await?;
        }
        Ok(())
    }
}

impl Reconciler<Device> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, device: &Device, ctx: &Context<Device>) -> Result<Action, ClientError> {
        if self.fixed {
            ctx.add_finalizer(device, FINALIZER).await?;
            self.register(device, ctx).await?;
        } else {
            self.register(device, ctx).await?;
            ctx.add_finalizer(device, FINALIZER).await?;
        }
        Ok(Action::await_change())
    }

    async fn cleanup(&self, device: &Device, ctx: &Context<Device>) -> Result<Action, ClientError> {
        if device.finalizers().iter().any(|name| name == FINALIZER) {
            ctx.client().kind::<ConfigMap>().delete(&registration(device)).await?;
            ctx.remove_finalizer(device, FINALIZER).await?;
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let rule = PolicyRule::of::<Device>([Verb::Patch]);
    let controller = Controller::<Device>::new(Operator { fixed }).owns::<ConfigMap>().rbac(|role| role.allow(rule));
    manager.kind::<Device>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    let is_registered = |world: &World| world.list::<ConfigMap>().iter().any(|map| map.name_any() == "device-pump");
    sim.apply(&namespace("registry")).await;
    sim.apply(&manifest("Device", "pump", json!({"serial": "17"}))).await;
    sim.until("it is registered", is_registered).await;
    sim.delete::<Device>("pump").await;
    sim.finally("a device that is gone isn't registered", move |world| {
        world.get::<Device>("pump").is_some() || !is_registered(world)
    });
    sim.advance(1.hours()).await;
}
