//! Steps of scenarios of the simulator that every operator has to pass.

use std::sync::Arc;

use kubewright::{
    object::Object,
    simulation::{Sim, World},
};
use serde_json::Value;

/// Writes a wrong status of an object of the namespace `default`, and then removes the status. Each time the operator has to write the right one
/// again. The status has to be complete before. `wrong` is merged into it.
pub async fn spoil_status<K: Object>(sim: &Sim, name: &str, wrong: Value) {
    let right = sim.read(|world| stable_status::<K>(world, name));
    for status in [wrong, Value::Null] {
        sim.edit_status::<K>(name, status).await;
        sim.until("the status is right again", |world| stable_status::<K>(world, name) == right).await;
    }
}

/// Returns the status without the times of transitions.
fn stable_status<K: Object>(world: &World, name: &str) -> Value {
    let is_it =
        |object: &&Arc<Value>| object["metadata"]["name"] == name && object["metadata"]["namespace"] == "default";
    let object = world.values(&K::group(&()), &K::kind(&())).find(is_it);
    let mut status = object.map_or(Value::Null, |object| object["status"].clone());
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"] = Value::Null;
    }
    status
}
