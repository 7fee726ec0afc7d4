//! An update that the API server refuses for ever.
//!
//! The operator runs a job with the image of its spec, and applies it again when the image changes. The template of a
//! job can't be changed: each attempt is refused, and the new version never runs.
//!
//! The fixed operator names the job after what it runs, and deletes jobs of other images.

use k8s_openapi::api::{batch::v1::{Job, JobSpec}, core::v1::PodTemplateSpec};
use kubewright::name::shorten;

use crate::kit::*;

bug!("immutable field", [
    "https://github.com/backube/volsync/issues/291",
    "https://github.com/airflow-helm/charts/issues/230",
    "https://github.com/kubernetes/kubernetes/issues/89657",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Migration", namespaced)]
pub(crate) struct MigrationSpec {
    image: String,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Migration> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, migration: &Migration, ctx: &Context<Migration>) -> Result<Action, ClientError> {
        let (name, image) = (migration.name_any(), &migration.spec.image);
        let name = if self.fixed { shorten(&format!("{name}-{image}"), 60) } else { name };
        let mut spec = pod(ObjectMeta::default(), image).spec.unwrap_or_default();
        spec.restart_policy = Some("Never".into());
        let template = PodTemplateSpec { metadata: None, spec: Some(spec) };
        let spec = Some(JobSpec { template, ..JobSpec::default() });
        ctx.apply_child(Job { metadata: named(&name), spec, status: None }).await?;
        for job in ctx.children::<Job>()?.iter().filter(|job| job.name_any() != name) {
            if is_current(migration, ctx).await? {
                ctx.delete(job.as_ref()).any_version().background().await?;
            }
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Migration>().controller(Controller::<Migration>::new(Operator { fixed }).owns::<Job>())
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Migration", "schema", json!({"image": "schema-v1"}))).await;
    sim.until("there is a job", |world| !world.list::<Job>().is_empty()).await;
    sim.edit::<Migration>("schema", json!({"spec": {"image": "schema-v2"}})).await;
    sim.finally("there is a job with the image", |world| {
        let image = |job: &Job| job.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.image.clone();
        let jobs = world.list::<Job>();
        world.list::<Migration>().iter().all(|it| jobs.iter().any(|job| image(job).as_ref() == Some(&it.spec.image)))
    });
    sim.advance(1.hours()).await;
}
