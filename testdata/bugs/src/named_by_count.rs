//! Names by counting.
//!
//! The operator names the next replica after the number of those that exist. When the first of three is deleted, there
//! are two, and the next one would be called as the third, which exists. Every creation is refused, and the gap stays.
//!
//! The fixed operator looks for the names that are missing.

use crate::kit::*;

bug!("name by count", [
    "https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#ordinal-index",
    "https://github.com/OutlineFoundation/outline-server/pull/261",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Cache", namespaced)]
pub(crate) struct CacheSpec {
    replicas: usize,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Cache> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, cache: &Cache, ctx: &Context<Cache>) -> Result<Action, ClientError> {
        let children = ctx.children::<ConfigMap>()?;
        let from = if self.fixed { 0 } else { children.len() };
        for index in from..cache.spec.replicas {
            let name = format!("{}-{index}", cache.name_any());
            if !(self.fixed && children.iter().any(|child| child.name_any() == name)) {
                ctx.create_child(config_map(named(&name), "index", &index.to_string())).await?;
            }
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Cache>().controller(Controller::<Cache>::new(Operator { fixed }).owns::<ConfigMap>())
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Cache", "pages", json!({"replicas": 3}))).await;
    sim.until("three are there", |world| world.get::<ConfigMap>("pages-2").is_some()).await;
    sim.delete::<ConfigMap>("pages-0").await;
    sim.finally("as many as desired", |world| {
        let maps = world.list::<ConfigMap>();
        let count = |cache: &Cache| maps.iter().filter(|map| is_child_of(*map, cache)).count();
        world.list::<Cache>().iter().all(|cache| count(cache) == cache.spec.replicas)
    });
    sim.advance(1.hours()).await;
}
