//! What all requests of a manager have in common: the name of the program, the rate limit; and requests as another
//! user.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use http::{Request, header::USER_AGENT};
use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::ClusterRole};
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, PostParams},
    client::Body,
};
use kubewright_runtime::{
    action::Action,
    client::{self, ClientError, Impersonation},
    clock::Clock,
    context::Context,
    controller::{Controller, Reconciler},
    event::Event,
    manager::Manager,
    object::ObjectKey,
};
use parking_lot::Mutex;
use tower::service_fn;

use crate::world::{Fleet, World, run, until};

/// Creates a config map and records an event.
struct Writer;

impl Reconciler<Fleet> for Writer {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        ctx.get_or_create_child(map(&fleet.name_any())).await?;
        ctx.record(Event::normal("Written", "all is well"));
        Ok(Action::await_change())
    }
}

fn map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some([("a".into(), "b".into())].into()), ..ConfigMap::default() }
}

/// A request as the test saw it: method, resource and `User-Agent`.
type Seen = (String, String, String);

/// Returns a client that records the requests.
fn recording(client: &Client, seen: &Arc<Mutex<BTreeSet<Seen>>>) -> Client {
    let (inner, seen) = (client.clone(), seen.clone());
    let send = move |request: Request<Body>| {
        let agent = request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let resource = request.uri().path().rsplit('/').next().unwrap_or_default();
        seen.lock().insert((request.method().to_string(), resource.into(), agent.into()));
        let client = inner.clone();
        async move { client.send(request).await }
    };
    Client::new(service_fn(send), client.default_namespace())
}

#[tokio::test(start_paused = true)]
async fn requests_name_the_program_and_the_controller() {
    let world = World::new().await;
    world.create_fleet("a", 0).await;
    let seen = Arc::default();
    let manager = Manager::new(recording(&world.client, &seen)).clock(world.clock.clone()).user_agent("fleetd/1.2");
    let outside = manager.client().await.expect("a client").namespace("default");
    let controller = Controller::<Fleet>::new(Writer).owns::<ConfigMap>();
    let running = run(manager.controller(controller));
    until("the event is written", || async { seen.lock().iter().any(|(_, resource, _)| resource == "events") }).await;
    outside.kind::<ConfigMap>().create(&map("outside")).await.expect("created");
    running.stop().await;
    let (seen, version) = (seen.lock().clone(), env!("CARGO_PKG_VERSION"));
    let agent_of = |method: &str, resource: &str| {
        let found = seen.iter().filter(|(its, of, _)| its == method && of == resource).map(|(_, _, agent)| agent);
        let agents = found.cloned().collect::<Vec<_>>();
        agents.iter().map(|agent| agent.replace(version, "V")).collect::<Vec<_>>()
    };
    let system = agent_of("GET", "fleets");
    let [plain] = system.as_slice() else { panic!("{system:?}") };
    assert!(plain.starts_with("fleetd/1.2 (") && plain.ends_with(") kubewright/V"), "{plain}");
    assert_eq!(agent_of("POST", "configmaps"), [plain.clone(), format!("{plain}/fleet")], "outside and in a reconcile");
    assert_eq!(agent_of("POST", "events"), std::slice::from_ref(plain));
}

/// Five lists after a burst of two, at ten per second.
#[tokio::test(start_paused = true)]
async fn the_rate_of_requests_can_be_limited() {
    let world = World::new().await;
    let (clock, times) = (world.clock.clone(), Arc::new(Mutex::new(Vec::new())));
    let (noting, reading) = (times.clone(), clock.clone());
    let manager = world.manager().client_rate_limit(10.0, 2);
    let running = run(manager.runnable(kubewright_runtime::manager::Runnable::new("lister", async move |context| {
        let maps = Api::<ConfigMap>::all(context.client);
        for _ in 0..7 {
            maps.list(&Default::default()).await?;
            noting.lock().push(reading.monotonic());
        }
        Ok(())
    })));
    until("all are answered", || async { times.lock().len() == 7 }).await;
    running.stop().await;
    let times = times.lock().clone();
    let pauses = times.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect::<Vec<_>>();
    assert_eq!(pauses.iter().filter(|pause| **pause >= 99).count(), 5, "{pauses:?}");
    assert!(times[6] - times[0] < Duration::from_millis(600), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_act_as_another_user() {
    let world = World::new().await;
    let client = client::Client::new(world.client.clone()).namespace("default");
    let jane = client.clone().impersonate(Impersonation::user("jane").group("readers"));
    let error = jane.kind::<ConfigMap>().create(&map("a")).await.expect_err("she has no role");
    let status = error.status().expect("an answer");
    assert_eq!(status.code, 403);
    assert!(status.message.contains("\"jane\""), "{}", status.message);
    let objects = [
        serde_json::json!({"kind": "ClusterRole", "metadata": {"name": "readers"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]}),
        serde_json::json!({"kind": "ClusterRoleBinding", "metadata": {"name": "readers"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "readers"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"}]}),
    ];
    let role: ClusterRole = serde_json::from_value(objects[0].clone()).expect("a role");
    Api::all(world.client.clone()).create(&PostParams::default(), &role).await.expect("created");
    let binding = serde_json::from_value::<k8s_openapi::api::rbac::v1::ClusterRoleBinding>(objects[1].clone());
    Api::all(world.client.clone()).create(&PostParams::default(), &binding.expect("one")).await.expect("created");
    let found = jane.kind::<ConfigMap>().get(&ObjectKey::namespaced("default", "a")).await;
    assert!(found.expect("her group may read").is_none());
    let broken = client.impersonate(Impersonation::user("a\nb"));
    let error = broken.kind::<ConfigMap>().get(&ObjectKey::namespaced("default", "a")).await.expect_err("no header");
    assert!(matches!(error, ClientError::Request { .. }), "{error}");
}
