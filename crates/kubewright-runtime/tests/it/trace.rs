//! Traces: the triggers of runs, their effects, and the states of keys.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PostParams},
};
use kubewright_cluster::faults::Verb;
use kubewright_runtime::{
    action::{Action, Retry},
    client::ClientError,
    context::Context,
    controller::{Controller, Reconciler},
    event::Event,
    object::ObjectKey,
    probe::BindAddress,
    trace::{ControllerPage, End, KeyPage, Limits, Next, Overview, Phase, Present, Query, Reason, Trace, Traces},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{fmt, layer::SubscriberExt, registry};

use crate::world::{Fleet, FleetReconciler, Running, World, controller, pass, run, until};

fn key() -> ObjectKey {
    ObjectKey::namespaced("default", "a")
}

/// Starts a controller with traces, and waits until it works.
async fn start(world: &World, controller: Controller<Fleet>) -> (Running, Traces) {
    let traces = Traces::default();
    let running = run(world.manager().traces(traces.clone()).controller(controller));
    until("it works", || async { traces.controllers().iter().any(|it| it.phase == Phase::Working) }).await;
    (running, traces)
}

/// Returns the triggers of all these runs, as `reason Kind namespace/name`.
fn triggers(runs: &[Arc<Trace>]) -> Vec<String> {
    let triggers = runs.iter().flat_map(|run| &run.triggers).map(|trigger| {
        let kind = trigger.kind.as_deref().unwrap_or_default();
        let object = trigger.object.as_deref().unwrap_or_default();
        format!("{:?} {kind} {object}", trigger.reason).trim_end().to_owned()
    });
    triggers.collect()
}

/// Returns the writes of a run, as `verb Kind namespace/name/subresource status`.
fn writes(run: &Trace) -> Vec<String> {
    let writes = run.writes.iter().map(|write| {
        let subresource = write.subresource.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
        let status = write.status.map_or("unanswered".into(), |status| status.to_string());
        format!("{} {} {}{subresource} {status}", write.verb, write.kind, write.object)
    });
    writes.collect()
}

async fn until_triggered(traces: &Traces, trigger: &str) {
    until(&format!("a run because of {trigger}"), || async {
        triggers(&traces.of("fleet", &key())).iter().any(|recorded| recorded == trigger)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn changes_of_objects_are_recorded_as_triggers() {
    let world = World::new().await;
    let (manager, traces) = start(&world, controller(FleetReconciler::default())).await;
    world.create_fleet("a", 2).await;
    world.wait_for_size("a", 2).await;
    until_triggered(&traces, "Updated Fleet default/a").await;
    world.ships().delete("a-0", &DeleteParams::default()).await.expect("deleted");
    until_triggered(&traces, "Deleted ConfigMap default/a-0").await;

    let runs = traces.of("fleet", &key());
    assert_eq!(triggers(&runs[..1]), ["Added Fleet default/a"]);
    assert_eq!(writes(&runs[0]), ["create ConfigMap default/a-0 201"]);
    assert_eq!((&runs[0].end, &runs[0].next), (&End::Done, &Next::Now));
    assert!(triggers(&runs[1..2]).contains(&"Requeue".to_owned()), "{:?}", triggers(&runs));
    assert!(triggers(&runs).contains(&"Added ConfigMap default/a-0".to_owned()), "{:?}", triggers(&runs));
    let reads = runs[0].reads.iter().map(|read| (read.kind.as_ref(), &read.query, read.found)).collect::<Vec<_>>();
    assert_eq!(reads, [("ConfigMap", &Query::Owner, Some(0))]);
    let status = runs.iter().find(|run| !run.writes.is_empty() && run.next == Next::Change).expect("a last write");
    assert_eq!(writes(status), ["patch Fleet default/a/status 200"]);
    assert!(runs.iter().all(|run| run.id.len() == 16 && run.attempt == 1));

    world.resize("a", 3).await;
    until("the changed fields are recorded", || async {
        let changed = ["metadata.generation".to_owned(), "spec.size".to_owned()];
        let runs = traces.of("fleet", &key());
        runs.iter().flat_map(|run| &run.triggers).any(|trigger| trigger.fields == changed)
    })
    .await;
    world.fleets().delete("a", &DeleteParams::default()).await.expect("deleted");
    until_triggered(&traces, "Deleted Fleet default/a").await;
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_first_list_is_recorded_and_a_key_keeps_its_last_runs() {
    let world = World::new().await;
    world.create_fleet("a", 1).await;
    let (manager, traces) = start(&world, controller(FleetReconciler::default())).await;
    until("the first run", || async { !traces.of("fleet", &key()).is_empty() }).await;
    assert_eq!(triggers(&traces.of("fleet", &key())[..1]), ["InitialList"]);
    world.wait_for_size("a", 1).await;
    world.resize("a", 20).await;
    world.wait_for_size("a", 20).await;
    until("all is quiet", || async {
        traces.explain("fleet", &key()).is_some_and(|page| page.present == Present::Idle)
    })
    .await;
    let summary = traces.controllers().remove(0);
    assert_eq!(traces.of("fleet", &key()).len(), Limits::default().runs_per_key);
    assert!(summary.runs > 20 && summary.kept == 8 && summary.displaced == 0, "{summary}");
    manager.stop().await;
}

/// Fails or panics with the server's message about a Secret, after so many writes that no more are recorded.
struct SecretWriter {
    panics: bool,
}

impl Reconciler<Fleet> for SecretWriter {
    type Error = ClientError;

    async fn reconcile(&self, _: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        for _ in 0..40 {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
            ctx.patch::<Fleet, _>(ctx.key(), &patch).await?;
        }
        let metadata = ObjectMeta { name: Some("token".into()), ..ObjectMeta::default() };
        let created = ctx.create_child(Secret { metadata, ..Secret::default() }).await;
        assert!(!self.panics, "{created:?}");
        created.map(|_| Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn errors_about_secrets_are_not_recorded() {
    for panics in [false, true] {
        let world = World::new().await;
        let _refused = world.faults.on(&[Verb::Create], "secrets").always().refuse_with(
            422,
            "Invalid",
            "Invalid value: \"hunter2\"",
        );
        world.create_fleet("a", 1).await;
        let (manager, traces) = start(&world, Controller::new(SecretWriter { panics }).name("fleet")).await;
        until("it failed", || async { traces.of("fleet", &key()).iter().any(|run| run.end != End::Done) }).await;
        let runs = traces.of("fleet", &key());
        let text = serde_json::to_string(&runs.iter().map(AsRef::as_ref).collect::<Vec<&Trace>>()).expect("json");
        assert!(text.contains("not shown here") && !text.contains("hunter2"), "{text}");
        manager.stop().await;
    }
}

/// A failed run is recorded with its error, and its retry with the number of the attempt.
#[tokio::test(start_paused = true)]
async fn a_failure_is_recorded_with_its_retry() {
    let world = World::new().await;
    let (manager, traces) = start(&world, controller(FleetReconciler::default())).await;
    let message = "configmaps is forbidden: no right to create";
    let refused = world.faults.on(&[Verb::Create], "configmaps").times(2).refuse_with(403, "Forbidden", message);
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    assert_eq!(refused.hits(), 2);

    let runs = traces.of("fleet", &key());
    let first = &runs[0];
    assert_eq!(writes(first), ["create ConfigMap default/a-0 403"]);
    assert_eq!(first.writes[0].error.as_deref(), Some(message));
    let error = format!("create configmaps default/a-0: {message}");
    assert_eq!(first.end, End::Failed { error, terminal: false });
    let Next::After { delay, time } = &first.next else { panic!("not retried: {:?}", first.next) };
    assert!(!delay.is_zero() && *time > first.started, "{:?}", first.next);
    assert_eq!(runs[..3].iter().map(|run| run.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(triggers(&runs[1..3]), ["Backoff", "Backoff"]);
    assert!(runs[1].started >= *time);
    assert_eq!(runs.last().map(|run| run.attempt), Some(1), "a success resets the attempts");
    manager.stop().await;
}

/// A write without an answer is recorded as unanswered.
#[tokio::test(start_paused = true)]
async fn a_write_without_a_response_is_recorded() {
    let world = World::new().await;
    let (manager, traces) = start(&world, controller(FleetReconciler::generating_names())).await;
    let lost = world.faults.on(&[Verb::Create], "configmaps").lose_response();
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    assert_eq!(lost.hits(), 1);
    let runs = traces.of("fleet", &key());
    assert_eq!(writes(&runs[0]), ["create ConfigMap default/a-* unanswered"]);
    let live = runs[1].reads.first().expect("a read");
    assert!(live.live && live.kind == "ConfigMap" && live.found == Some(1), "{live:?}");
    manager.stop().await;
}

/// While the barrier delays a key, this is reported; afterwards the trace has the duration.
#[tokio::test(start_paused = true)]
async fn a_key_that_waits_for_the_cache_is_reported() {
    let world = World::new().await;
    let (manager, traces) = start(&world, controller(FleetReconciler::default())).await;
    let gate = world.faults.on(&[Verb::Watch], "configmaps").always().delay(Duration::from_secs(3));
    pass(300).await;
    world.create_fleet("a", 2).await;
    until("it is held back", || async {
        traces.explain("fleet", &key()).is_some_and(|page| matches!(page.present, Present::Held { .. }))
    })
    .await;
    assert_eq!(traces.controllers()[0].held, 1);
    let page = traces.explain("fleet", &key()).expect("the controller").to_string();
    assert!(page.contains("has been waiting for"), "{page}");
    world.wait_for_size("a", 2).await;
    assert!(gate.hits() > 0);
    let held = traces.of("fleet", &key()).iter().filter_map(|run| run.held).max();
    assert!(held.is_some_and(|held| held >= Duration::from_secs(2)), "{held:?}");
    manager.stop().await;
}

/// Depending on the size, reads a lot and requeues itself after a minute, panics, hangs, or fails.
struct Busy;

impl Reconciler<Fleet> for Busy {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        match fleet.spec.size {
            0 => {
                ctx.record(Event::warning("Empty", "no ships at all"));
                let _ = ctx.get::<ConfigMap>(&ctx.key().sibling("other"))?;
                let _ = ctx.list::<ConfigMap>(&Default::default())?;
                let _ = ctx.cached::<ConfigMap>()?.len();
                for _ in 0..50 {
                    let _ = ctx.live().get::<Fleet>(ctx.key()).await?;
                }
                Ok(Action::requeue_after(Duration::from_secs(60)))
            }
            1 => panic!("one is none"),
            2 => std::future::pending().await,
            _ => {
                let patch = Patch::Merge(json!({"data": {"a": "b"}}));
                ctx.patch::<ConfigMap, _>(&ctx.key().sibling("missing"), &patch).await?;
                Ok(Action::await_change())
            }
        }
    }

    fn error_policy(&self, _: &ClientError) -> Retry {
        Retry::Terminal
    }
}

#[tokio::test(start_paused = true)]
async fn every_outcome_and_next_run_is_recorded() {
    let world = World::new().await;
    let busy = Controller::new(Busy).reads::<ConfigMap>().timeout(Duration::from_secs(10));
    let (manager, traces) = start(&world, busy).await;
    let fleet = |size: usize| {
        let (world, traces) = (&world, &traces);
        let name = format!("f{size}");
        async move {
            world.create_fleet(&name, size).await;
            let key = ObjectKey::namespaced("default", &name);
            until("it has run", || async { !traces.of("fleet", &key).is_empty() }).await;
            traces.of("fleet", &key).remove(0)
        }
    };
    let calm = fleet(0).await;
    assert!(matches!(&calm.next, Next::After { delay, .. } if delay.as_secs() == 60), "{calm}");
    assert_eq!((calm.reads.len(), calm.more_reads), (32, 21), "no more is kept of a run");
    assert_eq!(calm.reads[0].found, Some(0));
    assert!(calm.reads[3].live && calm.reads[3].duration.is_some());
    assert!(calm.events[0].warning && calm.events[0].reason == "Empty");
    assert!(!serde_json::to_string(calm.as_ref()).expect("json").contains("no ships"), "an event's text isn't kept");

    assert_eq!(fleet(1).await.end, End::Panicked { error: "one is none".into() });
    assert_eq!(fleet(2).await.end, End::TimedOut { limit: Duration::from_secs(10) });
    let refused = fleet(3).await;
    assert!(matches!(&refused.end, End::Failed { terminal: true, .. }) && refused.next == Next::Change, "{refused}");
    assert_eq!(writes(&refused), ["patch ConfigMap default/missing 404"]);

    let key = ObjectKey::namespaced("default", "f0");
    let page = traces.explain("fleet", &key).expect("the controller");
    assert!(matches!(page.present, Present::Delayed { left } if left <= Duration::from_secs(60)), "{page}");
    until("its time has come", || async { traces.of("fleet", &key).len() > 1 }).await;
    assert_eq!(traces.of("fleet", &key)[1].triggers[0].reason, Reason::Timer);
    manager.stop().await;
}

/// A controller that can't start reports what it waits for.
#[tokio::test(start_paused = true)]
async fn a_controller_that_cannot_start_is_reported() {
    let world = World::without_fleets();
    let traces = Traces::default();
    let manager = run(world.manager().traces(traces.clone()).controller(controller(FleetReconciler::default())));
    let missing = "fleets.test.kubewright.dev: ";
    until("it says so", || async {
        let page = traces.explain("fleet", &key()).map(|page| page.to_string()).unwrap_or_default();
        page.contains("cannot start until it has listed") && page.contains(missing) && page.contains("is installed")
    })
    .await;
    world.install_fleets().await;
    until("it works", || async { traces.controllers()[0].phase == Phase::Working }).await;
    assert!(traces.controllers()[0].missing.is_empty());
    let page = traces.explain("fleet", &key()).expect("the controller");
    assert!(!page.exists && page.to_string().contains("is not in the cache of the operator"), "{page}");
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disabled_traces_keep_nothing() {
    let world = World::new().await;
    let manager = run(world.manager().traces(Traces::off()).controller(controller(FleetReconciler::default())));
    world.create_fleet("a", 2).await;
    world.wait_for_size("a", 2).await;
    manager.stop().await;
}

/// Logs a line, and fails.
struct Talkative;

impl Reconciler<Fleet> for Talkative {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        tracing::info!(size = fleet.spec.size, "looking");
        tokio::task::yield_now().await;
        let patch = Patch::Merge(json!({"data": {"a": "b"}}));
        ctx.patch::<ConfigMap, _>(&ctx.key().sibling("missing"), &patch).await.map(|_| Action::await_change())
    }
}

/// Captures the log of this thread, on which all tasks of a test run.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Every line logged during a reconcile, by the reconciler or the runtime, has the id of the trace, in the text and in
/// the JSON format.
#[tokio::test(start_paused = true)]
async fn every_line_of_a_reconcile_has_its_id() {
    let world = World::new().await;
    let (lines, texts) = (Lines::default(), Lines::default());
    let layers = {
        let (lines, texts) = (lines.clone(), texts.clone());
        let machines = fmt::layer().json().flatten_event(true).with_writer(move || lines.clone());
        let people = fmt::layer().with_ansi(false).with_writer(move || texts.clone());
        registry().with(LevelFilter::INFO).with(machines).with(people)
    };
    let _logging = tracing::subscriber::set_default(layers);
    let (manager, traces) = start(&world, Controller::new(Talkative)).await;
    world.create_fleet("a", 7).await;
    until("two runs", || async { traces.of("fleet", &key()).len() > 1 }).await;
    manager.stop().await;

    let id = traces.of("fleet", &key())[0].id.clone();
    let messages = ["looking", "the reconcile failed"];
    let text = |lines: &Lines| String::from_utf8(lines.0.lock().clone()).expect("text");
    let machines = text(&lines);
    let lines = machines.lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line).expect("json");
        let span = &line["span"];
        assert!(!messages.contains(&line["message"].as_str()?) || span["reconcile_id"].is_string(), "{line}");
        let is_ours = span["reconcile_id"] == id.as_str();
        assert!(!is_ours || (&span["controller"], &span["object"]) == (&json!("fleet"), &json!("default/a")), "{line}");
        is_ours.then(|| line["message"].as_str().map(str::to_owned))?
    });
    assert_eq!(lines.collect::<Vec<_>>(), messages);
    let ours = format!("reconcile_id={id}");
    let quoted = format!("reconcile_id=\"{id}\"");
    let people = text(&texts);
    let lines = people.lines().filter(|line| line.contains(&ours) || line.contains(&quoted)).collect::<Vec<_>>();
    assert!(lines.len() == 2 && lines[0].contains("looking") && lines[1].contains("the reconcile failed"), "{people}");
}

/// Repeatedly writes a field that config maps don't have.
struct Sloppy;

impl Reconciler<Fleet> for Sloppy {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let patch = Patch::Merge(json!({"odd": 1}));
        ctx.client().kind::<ConfigMap>().patch(&ObjectKey::of(fleet), &patch).await?;
        Ok(Action::requeue_after(Duration::from_secs(1)))
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_warns_of_is_logged_once() {
    let world = World::new().await;
    let lines = Lines::default();
    let layer = {
        let lines = lines.clone();
        fmt::layer().json().flatten_event(true).with_writer(move || lines.clone())
    };
    let _logging = tracing::subscriber::set_default(registry().with(LevelFilter::INFO).with(layer));
    let map = serde_json::from_value(json!({"metadata": {"name": "a"}})).expect("a config map");
    world.ships().create(&PostParams::default(), &map).await.expect("accepted");
    let (manager, traces) = start(&world, Controller::new(Sloppy)).await;
    world.create_fleet("a", 1).await;
    until("some runs", || async { traces.of("fleet", &key()).len() > 3 }).await;
    manager.stop().await;

    let text = String::from_utf8(lines.0.lock().clone()).expect("text");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("json"));
    let warnings: Vec<_> = lines.filter(|line| line["message"] == "warning of the API server").collect();
    assert_eq!(warnings.len(), 1, "{text}");
    let warning = &warnings[0];
    assert_eq!((&warning["level"], &warning["warning"]), (&json!("WARN"), &json!("unknown field \"odd\"")));
    assert_eq!(warning["path"], "/api/v1/namespaces/default/configmaps/a");
}

/// Writes the same value twice.
struct Twice;

impl Reconciler<Fleet> for Twice {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"seen": "yes"}}}));
        for _ in 0..2 {
            ctx.client().kind::<ConfigMap>().patch(&ObjectKey::of(fleet), &patch).await?;
        }
        Ok(Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn channels_and_effective_writes_are_recorded() {
    let world = World::new().await;
    let map = serde_json::from_value(json!({"metadata": {"name": "a"}})).expect("a config map");
    world.ships().create(&PostParams::default(), &map).await.expect("accepted");
    world.create_fleet("a", 1).await;
    let orders = Controller::new(Twice).reads::<ConfigMap>().watches_raw_source(|waker| async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        waker.named("orders").wake(key());
        std::future::pending().await
    });
    let (manager, traces) = start(&world, orders).await;
    until("two runs", || async { traces.of("fleet", &key()).len() > 1 }).await;
    manager.stop().await;
    let runs = traces.of("fleet", &key());
    let changed = |run: &Trace| run.writes.iter().map(|write| write.changed).collect::<Vec<_>>();
    assert_eq!(changed(&runs[0]), [Some(true), Some(false)]);
    assert_eq!(changed(&runs[1]), [Some(false), Some(false)]);
    let text = runs[1].to_string();
    assert!(text.contains("because an event arrived on the channel orders") && text.contains("(no change)"), "{text}");
}

/// Returns the status code, content type and body of a response.
async fn fetch(port: u16, path: &str, accept: &str) -> (u16, String, String) {
    fetch_as((Ipv4Addr::LOCALHOST, port).into(), "localhost", path, accept).await
}

async fn fetch_as(address: SocketAddr, host: &str, path: &str, accept: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: {accept}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
    let kind = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
    (code, kind.into(), body.into())
}

/// Uses a real socket, and so real time.
#[tokio::test]
async fn the_probe_port_shows_them_as_json_and_as_text() {
    let world = World::new().await;
    let reserved = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let port = reserved.local_addr().expect("its address").port();
    drop(reserved);
    let address = BindAddress::Host("127.0.0.1".into(), port);
    let manager = run(world.manager().probe_address(address).controller(controller(FleetReconciler::default())));
    world.create_fleet("a", 2).await;
    world.wait_for_size("a", 2).await;

    let (code, kind, body) = fetch(port, "/debug/traces", "*/*").await;
    assert_eq!((code, kind.as_str()), (200, "application/json"));
    let overview: Overview = serde_json::from_str(&body).expect("the documented form");
    assert_eq!((overview.version, overview.controllers[0].name.as_str()), (1, "fleet"));
    let (_, _, body) = fetch(port, "/debug/traces/fleet?limit=2", "*/*").await;
    let page: ControllerPage = serde_json::from_str(&body).expect("the documented form");
    assert_eq!(page.runs.len(), 2);
    let (_, _, body) = fetch(port, "/debug/traces/fleet/default/a", "*/*").await;
    let page: KeyPage = serde_json::from_str(&body).expect("the documented form");
    assert!(page.exists && page.runs.len() > 2);
    let value: Value = serde_json::from_str(&body).expect("json");
    assert_eq!(value["runs"][0]["object"], "default/a");
    assert_eq!(value["runs"][0]["writes"][0]["status"], 201);

    let (code, kind, body) = fetch(port, "/debug/traces/fleet/default/a", "text/plain").await;
    assert_eq!((code, kind.as_str()), (200, "text/plain; charset=utf-8"));
    assert_eq!(fetch(port, "/debug/traces/fleet/default/a?format=text", "*/*").await.1, kind);
    let first = body.lines().next().unwrap_or_default();
    assert!(
        first.contains(" fleet default/a ran for ") && first.contains("; created ConfigMap default/a-0;"),
        "{body}"
    );
    let last = body.lines().last().unwrap_or_default();
    assert!(last.contains("fleet default/a is "), "{body}");
    let (code, _, body) = fetch(port, "/debug/traces/other/default/a", "*/*").await;
    assert_eq!((code, body.as_str()), (404, "no controller \"other\"; the controllers are: fleet\n"));
    manager.stop().await;
}

/// Returns the address at which other machines reach this one, if there is one. Sends nothing.
fn public_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|address| !address.is_loopback())
}

#[tokio::test]
async fn traces_and_reasons_are_shown_to_local_requests_alone() {
    let world = World::new().await;
    let reserved = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.expect("a port");
    let port = reserved.local_addr().expect("its address").port();
    drop(reserved);
    let manager = world.manager().probe_address(BindAddress::AllInterfaces(port));
    manager.probes().readyz.add("cows", async || Err("berta is ill".into()));
    let manager = run(manager.controller(controller(FleetReconciler::default())));
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;

    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    assert_eq!(fetch_as(local, "localhost", "/debug/traces/fleet/default/a", "*/*").await.0, 200);
    let (code, _, reason) = fetch_as(local, &format!("127.0.0.1:{port}"), "/readyz/cows", "*/*").await;
    assert_eq!((code, reason.as_str()), (500, "internal server error: berta is ill\n"));
    assert!(fetch_as(local, "localhost", "/readyz", "*/*").await.2.contains("[-]cows failed: berta is ill\n"));

    // A web page whose name resolves to 127.0.0.1, and another machine.
    let others =
        [(local, "evil.example")].into_iter().chain(public_address().map(|ip| ((ip, port).into(), "localhost")));
    for (address, host) in others {
        for path in ["/debug/traces", "/debug/traces/fleet", "/debug/traces/fleet/default/a"] {
            let (code, _, body) = fetch_as(address, host, path, "*/*").await;
            assert_eq!(code, 403, "{address} {host} {path}");
            assert!(body.contains("kubectl port-forward") && !body.contains("ConfigMap"), "{body}");
        }
        assert_eq!(fetch_as(address, host, "/healthz", "*/*").await.0, 200);
        for path in ["/readyz", "/readyz/cows", "/readyz?verbose"] {
            let (code, _, page) = fetch_as(address, host, path, "*/*").await;
            assert!(code == 500 && page.contains("reason withheld") && !page.contains("berta"), "{path}: {page}");
        }
    }
    manager.stop().await;
}

#[tokio::test]
async fn traces_of_a_pod_are_on_its_loopback() {
    let Some(pod) = public_address() else { return };
    let world = World::new().await;
    let reserved = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.expect("a port");
    let port = reserved.local_addr().expect("its address").port();
    drop(reserved);
    let address = BindAddress::Host(pod.to_string(), port);
    let manager = run(world.manager().probe_address(address).controller(controller(FleetReconciler::default())));
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    let probed = SocketAddr::from((pod, port));
    assert_eq!(fetch_as(probed, &probed.to_string(), "/healthz", "*/*").await.0, 200);
    assert_eq!(fetch_as(probed, &probed.to_string(), "/debug/traces", "*/*").await.0, 403);
    assert_eq!(fetch(port, "/debug/traces", "*/*").await.0, 200);
    manager.stop().await;
}

/// Reads the cache in every possible way.
struct CacheReader;

impl Reconciler<Fleet> for CacheReader {
    type Error = ClientError;

    async fn reconcile(&self, _: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let Ok(secrets) = ctx.watch::<Secret>(|_| false) else { return Ok(Action::await_change()) };
        let red = kube::core::Selector::from_iter([("color".to_owned(), "red".to_owned())]);
        let maps = ctx.cached::<ConfigMap>()?;
        assert_eq!((maps.len(), maps.get(&ctx.key().sibling("m")).is_some(), secrets.is_empty()), (1, true, true));
        assert!(!maps.contains(&ctx.key().sibling("n")) && maps.list(None, &red).is_empty());
        assert!(maps.controlled_by("unknown-uid").is_empty() && ctx.children::<ConfigMap>()?.is_empty());
        assert_eq!(maps.indexed_keys("by name", "m").len(), 1);
        Ok(Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn each_read_from_the_cache_is_recorded() {
    let world = World::new().await;
    let map = serde_json::from_value(json!({"metadata": {"name": "m"}})).expect("a config map");
    world.ships().create(&PostParams::default(), &map).await.expect("accepted");
    let controller = Controller::new(CacheReader).index("by name", |map: &ConfigMap| vec![map.name_any()]);
    let traces = Traces::default();
    let manager = run(world.manager().traces(traces.clone()).controller(controller));
    world.create_fleet("a", 0).await;
    let expected = "read 1 ConfigMap, ConfigMap default/m, 0 Secrets, no ConfigMap default/n, \
                0 ConfigMaps with color=red, 0 ConfigMaps, 0 ConfigMaps, 1 ConfigMap with by name m; ";
    until("the reads are recorded", || async {
        traces.of("fleet", &key()).iter().any(|run| run.to_string().contains(expected))
    })
    .await;
    manager.stop().await;
}
