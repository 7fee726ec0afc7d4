//! The built-in controllers in place of an operator: whatever happens at one of their requests, the cluster ends as
//! without it.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::{ConfigMap, Namespace, PersistentVolume, PersistentVolumeClaim, Pod, Service},
    discovery::v1::EndpointSlice,
    policy::v1::PodDisruptionBudget,
};
use kube::ResourceExt;
use kubewright_simulation::{
    Budget, Fault, Point, Scenario, Schedule, Sim, World,
    fault::{WorldFault, WriteFault},
};
use serde_json::json;

const MINUTE: Duration = Duration::from_secs(60);

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: 'web:1', ports: [{containerPort: 80}]}]}
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
";

fn is_live(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn live(world: &World) -> usize {
    world.list::<Pod>().iter().filter(|pod| is_live(pod)).count()
}

fn is_rolled_out(world: &World, name: &str, replicas: i32) -> bool {
    world.get::<Deployment>(name).is_some_and(|deployment| {
        let status = deployment.status.unwrap_or_default();
        status.observed_generation == deployment.metadata.generation
            && status.updated_replicas == Some(replicas)
            && status.available_replicas == Some(replicas)
            && status.replicas == Some(replicas)
    })
}

fn addresses(world: &World, service: &str) -> usize {
    let slices = world.list::<EndpointSlice>();
    let of =
        slices.iter().filter(|slice| slice.labels().get("kubernetes.io/service-name").is_some_and(|it| it == service));
    of.map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len)).sum()
}

/// A Deployment with a Service and a budget is rolled out twice, scaled, and deleted.
async fn deployment(sim: &Sim) {
    sim.always("no more pods than the surge allows", |world| live(world) <= 4);
    sim.finally("nothing is left", |world| {
        world.list::<ReplicaSet>().is_empty() && world.list::<Pod>().is_empty() && addresses(world, "web") == 0
    });
    sim.apply(WEB).await;
    sim.until("it is rolled out", |world| is_rolled_out(world, "web", 2)).await;
    sim.until("the service has both", |world| addresses(world, "web") == 2).await;
    let container =
        |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}});
    sim.edit::<Deployment>("web", container("web:2")).await;
    sim.until("the new version is rolled out", |world| {
        is_rolled_out(world, "web", 2)
            && world.list::<Pod>().iter().filter(|pod| is_live(pod)).all(|pod| image(pod) == "web:2")
    })
    .await;
    sim.edit::<Deployment>("web", json!({"spec": {"replicas": 3}})).await;
    sim.until("it is scaled", |world| is_rolled_out(world, "web", 3)).await;
    sim.until("the budget counts them", |world| {
        let budget = world.get::<PodDisruptionBudget>("web").and_then(|budget| budget.status);
        budget.is_some_and(|status| status.current_healthy == Some(3) && status.disruptions_allowed == Some(2))
    })
    .await;
    sim.delete::<Deployment>("web").await;
    sim.advance(10 * MINUTE).await;
    sim.delete::<Service>("web").await;
    sim.delete::<PodDisruptionBudget>("web").await;
}

fn image(pod: &Pod) -> String {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    containers.first().and_then(|container| container.image.clone()).unwrap_or_default()
}

const STORE: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  serviceName: store
  replicas: 2
  selector: {matchLabels: {app: store}}
  persistentVolumeClaimRetentionPolicy: {whenScaled: Delete, whenDeleted: Delete}
  template:
    metadata: {labels: {app: store}}
    spec: {containers: [{name: main, image: 'store:1', volumeMounts: [{name: data, mountPath: /data}]}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";

/// A StatefulSet with claims is scaled down and deleted.
async fn stateful_set(sim: &Sim) {
    sim.always("no pod without those before it", |world| {
        world
            .get::<Pod>("store-1")
            .is_none_or(|pod| !is_live(&pod) || world.get::<PersistentVolumeClaim>("data-store-1").is_some())
    });
    sim.finally("nothing is left", |world| {
        world.list::<Pod>().is_empty()
            && world.list::<PersistentVolumeClaim>().is_empty()
            && world.list::<PersistentVolume>().is_empty()
    });
    sim.apply(STORE).await;
    let ready = |world: &World, replicas| {
        world.get::<StatefulSet>("store").is_some_and(|set| {
            let status = set.status.unwrap_or_default();
            status.ready_replicas.unwrap_or_default() == replicas && status.replicas == replicas
        })
    };
    sim.until("both are ready", |world| ready(world, 2)).await;
    sim.edit::<StatefulSet>("store", json!({"spec": {"replicas": 1}})).await;
    sim.until("it is scaled, and the claim is gone", |world| {
        ready(world, 1)
            && world.list::<PersistentVolumeClaim>().len() == 1
            && world.list::<PersistentVolume>().len() == 1
    })
    .await;
    sim.delete::<StatefulSet>("store").await;
}

const WORK: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  completions: 3
  parallelism: 2
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: 'work:1'}]}}
";

/// The user ends the pods of a Job, one of them with a failure.
async fn job(sim: &Sim) {
    sim.always("no more pods than the parallelism", |world| live(world) <= 2);
    sim.finally("it is counted right", |world| {
        world.get::<Job>("work").and_then(|job| job.status).is_some_and(|status| {
            status.succeeded == Some(3) && status.failed == Some(1) && status.active.unwrap_or_default() == 0
        })
    });
    sim.apply(WORK).await;
    for code in [1, 0, 0, 0] {
        let running = |world: &World| {
            let mut pods = world.list::<Pod>();
            pods.retain(|pod| {
                is_live(pod) && pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
            });
            pods.first().map(ResourceExt::name_any)
        };
        sim.until("a pod runs", |world| running(world).is_some()).await;
        let Some(pod) = sim.read(running) else { return };
        if code == 0 { sim.finish_pod(&pod).await } else { sim.fail_pod(&pod).await }
    }
    sim.until("it is complete", |world| {
        let conditions = world.get::<Job>("work").and_then(|job| job.status?.conditions).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Complete" && condition.status == "True")
    })
    .await;
}

const NIGHTLY: &str = "
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: '*/10 * * * *'
  concurrencyPolicy: Replace
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: 'work:1'}]}}}}
";

/// A CronJob replaces its Job several times, and is suspended and deleted.
async fn cron_job(sim: &Sim) {
    sim.always("one job at a time", |world| {
        world.list::<Job>().iter().filter(|job| job.metadata.deletion_timestamp.is_none()).count() <= 1
    });
    sim.finally("nothing is left", |world| world.list::<Job>().is_empty() && world.list::<Pod>().is_empty());
    sim.apply(NIGHTLY).await;
    sim.advance(35 * MINUTE).await;
    sim.edit::<CronJob>("nightly", json!({"spec": {"suspend": true}})).await;
    sim.advance(15 * MINUTE).await;
    sim.delete::<CronJob>("nightly").await;
}

const AGENTS: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agents}
spec:
  selector: {matchLabels: {app: agents}}
  template:
    metadata: {labels: {app: agents}}
    spec: {containers: [{name: main, image: 'agent:1'}]}
";

/// A DaemonSet is updated and deleted.
async fn daemon_set(sim: &Sim) {
    sim.always("one pod", |world| live(world) <= 1);
    sim.finally("nothing is left", |world| world.list::<Pod>().is_empty());
    sim.apply(AGENTS).await;
    let is_ready = |world: &World, image_of: &str| {
        world.get::<DaemonSet>("agents").and_then(|set| set.status).is_some_and(|status| status.number_ready == 1)
            && world.list::<Pod>().iter().any(|pod| is_live(pod) && image(pod) == image_of)
    };
    sim.until("it runs", |world| is_ready(world, "agent:1")).await;
    let container = json!([{"name": "main", "image": "agent:2"}]);
    sim.edit::<DaemonSet>("agents", json!({"spec": {"template": {"spec": {"containers": container}}}})).await;
    sim.until("the new version runs", |world| is_ready(world, "agent:2")).await;
    sim.delete::<DaemonSet>("agents").await;
}

const SHOP: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: shop, finalizers: [example.com/hold]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: till, namespace: shop}, spec: {containers: [{name: main, image: 'till:1'}]}}
";

/// A namespace is deleted while a finalizer holds one of its objects.
async fn namespace(sim: &Sim) {
    sim.finally("it is gone", |world| {
        world.get::<Namespace>("shop").is_none()
            && world.list::<ConfigMap>().iter().all(|map| map.metadata.namespace.as_deref() != Some("shop"))
            && world.list::<Pod>().is_empty()
    });
    sim.apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}").await;
    sim.until("it has its account", |world| {
        world.get_in::<k8s_openapi::api::core::v1::ServiceAccount>("shop", "default").is_some()
    })
    .await;
    sim.apply(SHOP).await;
    sim.advance(MINUTE).await;
    sim.delete::<Namespace>("shop").await;
    sim.advance(5 * MINUTE).await;
    sim.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: shop, finalizers: []}}").await;
}

fn scenarios() -> [Scenario; 6] {
    [
        Scenario::of_controllers("deployment", deployment),
        Scenario::of_controllers("stateful-set", stateful_set),
        Scenario::of_controllers("job", job),
        Scenario::of_controllers("cron-job", cron_job),
        Scenario::of_controllers("daemon-set", daemon_set),
        Scenario::of_controllers("namespace", namespace),
    ]
}

/// Searches the scenario with an index, in sixty runs.
fn search(nth: usize) {
    let scenario = scenarios().into_iter().nth(nth).unwrap();
    let Some(search) = crate::search(&scenario, &Budget::default().runs(60)) else { return };
    assert!(search.writes > 10, "{} writes", search.writes);
}

#[test]
fn a_deployment_survives_faults() {
    search(0);
}

#[test]
fn a_stateful_set_survives_faults() {
    search(1);
}

#[test]
fn a_job_survives_faults() {
    search(2);
}

#[test]
fn a_cron_job_survives_faults() {
    search(3);
}

#[test]
fn a_daemon_set_survives_faults() {
    search(4);
}

#[test]
fn a_deletion_of_a_namespace_survives_faults() {
    search(5);
}

/// A write that is refused as a conflict may not have been one with a newer state.
#[test]
fn a_conflict_is_decided_again() {
    let scenario = Scenario::of_controllers("deployment", deployment);
    let calm = scenario.run(&Schedule::calm(0)).unwrap();
    for nth in 0..calm.writes {
        let schedule = Schedule::calm(0).with(Point::Write(nth), Fault::Write(WriteFault::Conflict));
        assert_eq!(scenario.run(&schedule).unwrap().findings, [], "{schedule}");
    }
}

/// A creation that is refused because the namespace is being deleted isn't tried again.
#[test]
fn nothing_is_created_in_a_namespace_that_is_being_deleted() {
    let scenario = Scenario::of_controllers("namespace", namespace);
    let (quota, deleted) = (Fault::World(WorldFault::QuotaFull), Fault::World(WorldFault::NamespaceDeleted));
    let schedule = Schedule::calm(0).with(Point::Step(0), quota).with(Point::Step(3), deleted);
    assert_eq!(scenario.run(&schedule).unwrap().findings, []);
}

#[test]
fn two_runs_of_the_controllers_with_a_seed_have_one_history() {
    for scenario in scenarios() {
        let run = || scenario.run(&Schedule::calm(7)).unwrap();
        let (one, other) = (run(), run());
        assert_eq!(one.findings, [], "{}", scenario.name());
        assert_eq!(one.history.digest(), other.history.digest(), "{}", scenario.name());
    }
}
