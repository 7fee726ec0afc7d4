//! A finalizer that is removed before the work that it stands for.
//!
//! The operator keeps a record of each bucket in another namespace, which garbage collection doesn't reach. On deletion
//! it takes its finalizer off, and then deletes the record. If it dies in between, the bucket is gone, nobody will look
//! at it again, and the record stays for ever.
//!
//! The fixed operator deletes the record first. The runtime takes the finalizer off when the cleanup has succeeded.

use crate::kit::*;

bug!("finalizer removed too early", [
    "https://github.com/appvia/kore/pull/818",
    "https://github.com/kubermatic/kubermatic/issues/4388",
    "https://github.com/pingcap/tidb-operator/issues/6532",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Bucket", namespaced)]
pub(crate) struct BucketSpec {
    region: String,
}

struct Operator {
    fixed: bool,
}

const FINALIZER: &str = "bugs.kubewright.dev/bucket";

fn record(bucket: &Bucket) -> ObjectKey {
    ObjectKey::namespaced("records", &format!("bucket-{}", bucket.name_any()))
}

impl Reconciler<Bucket> for Operator {
    const FINALIZER: Option<&'static str> = Some(FINALIZER);

    type Error = ClientError;

    async fn reconcile(&self, bucket: &Bucket, ctx: &Context<Bucket>) -> Result<Action, ClientError> {
        let key = record(bucket);
        if ctx.get::<ConfigMap>(&key)?.is_none() && is_current(bucket, ctx).await? {
            let metadata = ObjectMeta { namespace: Some("records".into()), ..named(key.name()) };
            ctx.apply(&config_map(metadata, "region", &bucket.spec.region)).await?;
        }
        Ok(Action::await_change())
    }

    async fn cleanup(&self, bucket: &Bucket, ctx: &Context<Bucket>) -> Result<Action, ClientError> {
        if !self.fixed {
            ctx.remove_finalizer(bucket, FINALIZER).await?;
        }
        ctx.client().kind::<ConfigMap>().delete(&record(bucket)).await?;
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Bucket>::new(Operator { fixed }).owns::<ConfigMap>();
    manager.kind::<Bucket>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    let has_record = |world: &World| world.list::<ConfigMap>().iter().any(|map| map.name_any() == "bucket-logs");
    sim.apply(&namespace("records")).await;
    sim.apply(&manifest("Bucket", "logs", json!({"region": "north"}))).await;
    sim.until("it is recorded", has_record).await;
    sim.delete::<Bucket>("logs").await;
    sim.finally("a bucket that is gone has no record", move |world| {
        world.get::<Bucket>("logs").is_some() || !has_record(world)
    });
    sim.advance(1.hours()).await;
}
