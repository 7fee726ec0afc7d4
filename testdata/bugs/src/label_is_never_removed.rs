//! A field that is taken out of the spec, and stays in the child.
//!
//! The operator merges the labels of its spec into its child. A label that a user takes out again isn't in the patch,
//! so it stays. Acto looks for it by taking each change of a spec back.
//!
//! The fixed operator applies the whole set, by which the API server knows what to remove.

use crate::kit::*;

bug!("spec field never taken back", [
    "https://github.com/OpenLiberty/open-liberty-operator/issues/734",
    "https://github.com/application-stacks/runtime-component-operator/issues/243",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Catalog", namespaced)]
pub(crate) struct CatalogSpec {
    labels: BTreeMap<String, String>,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Catalog> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, catalog: &Catalog, ctx: &Context<Catalog>) -> Result<Action, ClientError> {
        let key = ctx.key().sibling(&format!("{}-index", catalog.name_any()));
        let labels = &catalog.spec.labels;
        let metadata = ObjectMeta { labels: Some(labels.clone()), ..named(key.name()) };
        let child = config_map(metadata, "entries", "0");
        match ctx.get::<ConfigMap>(&key)? {
            Some(_) if !self.fixed => {
                ctx.patch::<ConfigMap, _>(&key, &Patch::Merge(json!({"metadata": {"labels": labels}}))).await?;
            }
            _ => drop(ctx.apply_child(child).await?),
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Catalog>().controller(Controller::<Catalog>::new(Operator { fixed }).owns::<ConfigMap>())
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Catalog", "books", json!({"labels": {"team": "shop", "tier": "gold"}}))).await;
    sim.until("it has an index", |world| world.get::<ConfigMap>("books-index").is_some()).await;
    sim.edit::<Catalog>("books", json!({"spec": {"labels": {"tier": null}}})).await;
    sim.finally("the index has the labels of the spec", |world| {
        let Some(index) = world.get::<ConfigMap>("books-index") else { return true };
        world.get::<Catalog>("books").is_none_or(|catalog| *index.labels() == catalog.spec.labels)
    });
    sim.advance(1.hours()).await;
}
