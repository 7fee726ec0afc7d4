//! The loop around the decisions.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::stream::FuturesUnordered;
use http::{Request, Response};
use jiff::Timestamp;
use kube::{Client, client::Body};
use kubewright_apimachinery::{
    clock::{SharedClock, VirtualClock},
    random::Random,
};
use kubewright_apiserver::ApiServer;
use tower::ServiceExt;

use super::{
    super::{CONCURRENCY, LONGEST_PAUSE, Scheduling},
    *,
};
use crate::{
    controllers::retry::Retries,
    object_client::{DeleteOptions, ObjectClient, ObjectPath},
};

/// How many bindings conflict before one succeeds.
const CONFLICTS: usize = 3;

/// A client whose first bindings conflict.
fn client_with_conflicts(api: &ApiServer, bindings: Arc<AtomicUsize>) -> ObjectClient {
    let inner = api.client();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, bindings) = (inner.clone(), bindings.clone());
        async move {
            let is_binding = request.uri().path().ends_with("/binding");
            if is_binding && bindings.fetch_add(1, Ordering::Relaxed) < CONFLICTS {
                let status = json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409});
                let body = Body::from(status.to_string().into_bytes());
                return Ok::<_, Infallible>(Response::builder().status(409).body(body).expect("a response"));
            }
            Ok(inner.send(request).await.expect("the API server answers"))
        }
    });
    ObjectClient::new(Client::new(service.boxed_clone(), "default"))
}

/// A server with a node, and its clock.
async fn server_with_node() -> (ApiServer, SharedClock) {
    let clock: SharedClock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
    let api = ApiServer::builder().clock(clock.clone()).build();
    let direct = ObjectClient::new(api.client());
    let create = async |plural: &str, namespace: Option<&str>, object: Value| {
        direct.create(&ObjectPath::core(plural, namespace, ""), "", &object).await.unwrap()
    };
    create("nodes", None, json!({"metadata": {"name": NODE_NAME}})).await;
    let capacity = json!({"cpu": "4", "memory": "4Gi", "pods": "1000"});
    let status = json!({"status": {"capacity": capacity, "allocatable": capacity}});
    let node = ObjectPath::core("nodes", None, NODE_NAME);
    direct.merge(&node, "/status", &status).await.unwrap();
    // Admission has given it the taint of a node that isn't ready.
    direct.merge(&node, "", &json!({"spec": {"taints": null}})).await.unwrap();
    create("serviceaccounts", Some("default"), json!({"metadata": {"name": "default"}})).await;
    (api, clock)
}

fn path(pod: &str) -> ObjectPath {
    ObjectPath::core("pods", Some("default"), pod)
}

async fn create_pod(client: &ObjectClient, name: &str) {
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    client.create(&path(""), "", &json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
}

/// Waits until a pod is bound.
async fn bound(client: &ObjectClient, name: &str) {
    let is_bound = async || {
        let pod = client.get(&path(name)).await.unwrap().expect("the pod exists");
        pod["spec"]["nodeName"] == NODE_NAME
    };
    let bound = tokio::time::timeout(Duration::from_secs(10), async {
        while !is_bound().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    bound.await.expect("the pod is bound");
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_conflicts_is_tried_again_without_a_change_of_the_pod() {
    let (api, clock) = server_with_node().await;
    let direct = ObjectClient::new(api.client());
    create_pod(&direct, "p").await;
    let bindings = Arc::new(AtomicUsize::new(0));
    let client = client_with_conflicts(&api, bindings.clone());
    let scheduler = tokio::spawn(super::super::run(api.clone(), client, clock, Random::seeded(1), None));
    bound(&direct, "p").await;
    assert_eq!(bindings.load(Ordering::Relaxed), CONFLICTS + 1);
    scheduler.abort();
}

#[tokio::test(start_paused = true)]
async fn many_pods_that_are_gone_keep_no_other_from_being_bound() {
    let (api, clock) = server_with_node().await;
    let client = ObjectClient::new(api.client());
    let names: Vec<_> = (0..=CONCURRENCY).map(|number| format!("gone-{number}")).collect();
    for name in &names {
        create_pod(&client, name).await;
    }
    let scheduling = Scheduling {
        feed: api.feed(),
        client: client.clone(),
        clock,
        random: Random::seeded(1),
        events: None,
        scheduler: Scheduler::default(),
        is_synced: false,
        retries: Retries::up_to(LONGEST_PAUSE),
        timers: Retries::default(),
        work: FuturesUnordered::new(),
    };
    for name in &names {
        client.delete(&path(name), &DeleteOptions::default()).await.unwrap();
    }
    create_pod(&client, "present").await;
    tokio::select! {
        biased;
        () = scheduling.run() => {}
        () = bound(&client, "present") => {}
    }
}
