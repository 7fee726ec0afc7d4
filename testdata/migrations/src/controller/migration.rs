//! The reconciler for `Migration`.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use kube::api::ObjectMeta;
use kubewright::prelude::*;

use super::job;
use crate::api::v1::Migration;

/// Returns the controller.
pub(crate) fn controller() -> Controller<Migration> {
    Controller::new(MigrationReconciler).name("migration").owns::<Job>()
}

struct MigrationReconciler;

impl Reconciler<Migration> for MigrationReconciler {
    type Error = ClientError;

    async fn reconcile(
        &self,
        object: &Migration,
        ctx: &Context<Migration>,
    ) -> Result<Action, ClientError> {
        // ANCHOR: name
        let jobs = ctx.children::<Job>()?;
        let mut status = object.status.clone().unwrap_or_default();
        // A Job can't be changed, so each version has its own. Its name says which, so that a second
        // creation meets the first.
        let name = format!("{}-{}", object.name_any(), object.spec.version);
        let mut job = jobs.iter().find(|job| job.name_any() == name).cloned();
        if needs_job(job.as_deref(), &jobs) {
            // ANCHOR_END: name
            // ANCHOR: live
            if !is_there(object, ctx).await? {
                return Ok(Action::await_change());
            }
            // ANCHOR_END: live
            // ANCHOR: create
            let metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
            job = Some(ctx.get_or_create_child(job::of(object, metadata)).await?.into());
        }
        if let Some(job) = &job {
            status.job = Some(job.name_any());
            status.version = Some(object.spec.version);
        }
        let (ready, reason, message) = job::ready(job.as_deref());
        // ANCHOR_END: create
        let generation = object.metadata.generation;
        let mut conditions = Conditions::new(&mut status.conditions, generation, ctx.now());
        conditions.set("Ready", ready, reason, message);
        ctx.set_status(status).await?;
        Ok(Action::await_change())
    }
}

// ANCHOR: needs
/// Returns whether the version of the spec has no Job yet, and no other one runs.
fn needs_job(job: Option<&Job>, jobs: &[Arc<Job>]) -> bool {
    job.is_none() && jobs.iter().all(|job| job::is_finished(job))
}
// ANCHOR_END: needs

// ANCHOR: there
/// Returns whether the object is still there. The cache may be late, and a Job of a deleted object
/// would migrate before it is collected.
async fn is_there(object: &Migration, ctx: &Context<Migration>) -> Result<bool, ClientError> {
    let live = ctx.live().get::<Migration>(ctx.key()).await?;
    let meta = live.map(|live| live.metadata);
    Ok(meta.is_some_and(|it| it.uid == object.metadata.uid && it.deletion_timestamp.is_none()))
}
// ANCHOR_END: there

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::v1::MigrationSpec;

    #[test]
    fn each_version_gets_one_job() {
        let spec = MigrationSpec { image: "orders-schema:7".into(), version: 7 };
        let jobs = [Arc::new(job::of(&Migration::new("orders", spec), ObjectMeta::default()))];
        assert!(needs_job(None, &[]));
        assert!(!needs_job(Some(&*jobs[0]), &jobs));
        assert!(!needs_job(None, &jobs), "one after the other");
    }
}
