//! A wrong owner: the UID of an object that had the same name before.
//!
//! The operator remembers the owner reference of each object by namespace and name. When a user deletes the object and
//! creates it again, the new object's child gets the UID of the old one. The garbage collector deletes the child, since
//! its owner is gone, and the operator creates it again.
//!
//! The fixed operator takes the reference from the object that it reconciles.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use parking_lot::Mutex;

use crate::kit::*;

bug!("wrong owner", [
    "https://github.com/cosmo-workspace/cosmo/issues/782",
    "https://github.com/ai-dynamo/grove/pull/802",
    "https://kubernetes.io/docs/concepts/architecture/garbage-collection/#owners-dependents",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Site", namespaced)]
pub(crate) struct SiteSpec {
    page: String,
}

#[derive(Default)]
struct Operator {
    fixed: bool,
    owners: Mutex<BTreeMap<String, OwnerReference>>,
}

impl Operator {
    fn owner(&self, site: &Site, key: &ObjectKey) -> Option<OwnerReference> {
        let owner = site.controller_owner_ref(&())?;
        if self.fixed { Some(owner) } else { Some(self.owners.lock().entry(key.to_string()).or_insert(owner).clone()) }
    }
}

impl Reconciler<Site> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, site: &Site, ctx: &Context<Site>) -> Result<Action, ClientError> {
        let name = format!("{}-page", site.name_any());
        if ctx.children::<ConfigMap>()?.is_empty() && is_current(site, ctx).await? {
            let owner_references = self.owner(site, ctx.key()).map(|owner| vec![owner]);
            let metadata = ObjectMeta { owner_references, ..named(&name) };
            ctx.create(&config_map(metadata, "html", &site.spec.page)).await?;
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let operator = Operator { fixed, ..Operator::default() };
    manager.kind::<Site>().controller(Controller::<Site>::new(operator).owns::<ConfigMap>())
}

pub(crate) async fn scenario(sim: &Sim) {
    let has_page = |world: &World| {
        let site = world.get::<Site>("home");
        site.is_some_and(|site| world.list::<ConfigMap>().iter().any(|map| is_child_of(map, &site)))
    };
    sim.apply(&manifest("Site", "home", json!({"page": "old"}))).await;
    sim.until("it has a page", has_page).await;
    sim.delete::<Site>("home").await;
    sim.until("it is gone", |world| world.get::<Site>("home").is_none()).await;
    sim.apply(&manifest("Site", "home", json!({"page": "new"}))).await;
    sim.finally("it has a page", move |world| world.get::<Site>("home").is_none() || has_page(world));
    sim.advance(1.hours()).await;
}
