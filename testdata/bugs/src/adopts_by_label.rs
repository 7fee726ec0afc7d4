//! Children found by label alone.
//!
//! The operator takes for its own whatever has the label `app` with its name, and deletes what is too much. A pod that
//! a user has started by hand with the same label, as one does to debug, counts and may be deleted. Kubernetes had it
//! with ReplicaSets that had overlapping selectors, until controllers were told apart by owner references.
//!
//! The fixed operator finds its children by the UID of their controller.

use kube::core::Expression;

use crate::kit::*;

bug!("adoption of others' children", [
    "https://github.com/kubernetes/kubernetes/issues/88550",
    "https://github.com/FoundationDB/fdb-kubernetes-operator/pull/260",
    "https://github.com/instaclustr/cassandra-operator/issues/402",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Worker", namespaced)]
pub(crate) struct WorkerSpec {
    replicas: usize,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Worker> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, worker: &Worker, ctx: &Context<Worker>) -> Result<Action, ClientError> {
        let name = worker.name_any();
        let pods = if self.fixed {
            ctx.children::<Pod>()?
        } else {
            ctx.list::<Pod>(&Selector::from(Expression::Equal("app".into(), name.clone())))?
        };
        for index in pods.len()..worker.spec.replicas {
            let labels = Some([("app".to_owned(), name.clone())].into());
            let metadata = ObjectMeta { labels, ..named(&format!("{name}-{index}")) };
            ctx.get_or_create_child(pod(metadata, "worker")).await?;
        }
        for pod in pods.iter().skip(worker.spec.replicas) {
            if !is_current(worker, ctx).await? {
                break;
            }
            ctx.delete(pod.as_ref()).any_version().await?;
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Worker>().controller(Controller::<Worker>::new(Operator { fixed }).owns::<Pod>())
}

pub(crate) async fn scenario(sim: &Sim) {
    let metadata = json!({"name": "web-debug", "namespace": "default", "labels": {"app": "web"}});
    let spec = json!({"containers": [{"name": "main", "image": "debugger"}]});
    sim.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).to_string()).await;
    sim.apply(&manifest("Worker", "web", json!({"replicas": 1}))).await;
    sim.advance(1.minutes()).await;
    sim.edit::<Worker>("web", json!({"spec": {"replicas": 0}})).await;
    sim.finally("the user's pod is there", |world| world.get::<Pod>("web-debug").is_some());
    sim.advance(1.hours()).await;
}
