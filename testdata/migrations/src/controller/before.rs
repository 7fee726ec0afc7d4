//! The reconciler for `Migration`, with a bug: a second Job of the same version may be created.

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

// ANCHOR: reconcile
impl Reconciler<Migration> for MigrationReconciler {
    type Error = ClientError;

    async fn reconcile(
        &self,
        object: &Migration,
        ctx: &Context<Migration>,
    ) -> Result<Action, ClientError> {
        let jobs = ctx.children::<Job>()?;
        let mut status = object.status.clone().unwrap_or_default();
        if needs_job(object, &jobs) {
            // A Job can't be changed, so each version has its own.
            let generate_name = Some(format!("{}-", object.name_any()));
            let metadata = ObjectMeta { generate_name, ..ObjectMeta::default() };
            let job = ctx.create_child(job::of(object, metadata)).await?;
            status.job = Some(job.name_any());
            status.version = Some(object.spec.version);
        }
        let job = jobs.iter().find(|job| job.metadata.name == status.job);
        let (ready, reason, message) = job::ready(job.map(Arc::as_ref));
        let generation = object.metadata.generation;
        let mut conditions = Conditions::new(&mut status.conditions, generation, ctx.now());
        conditions.set("Ready", ready, reason, message);
        ctx.set_status(status).await?;
        Ok(Action::await_change())
    }
}

/// Returns whether the version of the spec has no Job yet, and no other one runs.
fn needs_job(object: &Migration, jobs: &[Arc<Job>]) -> bool {
    let version = object.status.as_ref().and_then(|status| status.version);
    version != Some(object.spec.version) && jobs.iter().all(|job| job::is_finished(job))
}
// ANCHOR_END: reconcile

// ANCHOR: test
#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::v1::{MigrationSpec, MigrationStatus};

    #[test]
    fn each_version_gets_one_job() {
        let spec = MigrationSpec { image: "orders-schema:7".into(), version: 7 };
        let mut orders = Migration::new("orders", spec);
        assert!(needs_job(&orders, &[]));

        let running = [Arc::new(job::of(&orders, ObjectMeta::default()))];
        let status = MigrationStatus { version: Some(7), ..MigrationStatus::default() };
        orders.status = Some(status);
        assert!(!needs_job(&orders, &running));

        orders.spec.version = 8;
        assert!(!needs_job(&orders, &running), "one after the other");
        assert!(needs_job(&orders, &[]));
    }
}
// ANCHOR_END: test
