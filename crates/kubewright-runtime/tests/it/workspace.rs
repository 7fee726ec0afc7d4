//! The workspace: the stored memory of a reconciler survives anything that happens between two writes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use kubewright_cluster::faults::Verb;
use kubewright_runtime::{
    action::Action,
    client::ClientError,
    context::{Context, LARGEST_WORKSPACE, WorkspaceError},
    controller::{Controller, Reconciler},
    rbac::Permissions,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::world::{Fleet, FleetStatus, Running, World, pass, run, until};

const NAME: &str = "a.fleet.workspace";

/// The content of the workspace.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Memory {
    token: Option<String>,
    instance: Option<String>,
    ballast: String,
}

/// A service outside the cluster that creates one instance for each token.
#[derive(Clone, Default)]
struct Cloud {
    tokens: Arc<Mutex<BTreeSet<String>>>,
}

impl Cloud {
    fn launch(&self, token: &str) -> String {
        self.tokens.lock().insert(token.into());
        format!("i-{token}")
    }

    fn instances(&self) -> usize {
        self.tokens.lock().len()
    }
}

/// Launches one instance for a fleet, and stores its id in the workspace. Errors are kept for the tests.
#[derive(Clone, Default)]
struct Launcher {
    cloud: Cloud,
    or_default: bool,
    ballast: usize,
    errors: Arc<Mutex<Vec<String>>>,
}

impl Reconciler<Fleet> for Launcher {
    type Error = ClientError;

    async fn reconcile(&self, _: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let done = self.launch(ctx).await;
        if let Err(error) = &done {
            self.errors.lock().push(error.to_string());
        }
        done.map(|()| Action::await_change())
    }
}

impl Launcher {
    async fn launch(&self, ctx: &Context<Fleet>) -> Result<(), ClientError> {
        let open = ctx.workspace::<Memory>();
        let mut memory = if self.or_default { open.or_default().await? } else { open.await? };
        if memory.instance.is_none() {
            if memory.token.is_none() {
                let token = format!("{:016x}", ctx.random().u64());
                let ballast = "x".repeat(self.ballast);
                memory
                    .update(|memory| {
                        memory.token = Some(token);
                        memory.ballast = ballast;
                    })
                    .await?;
            }
            let instance = self.cloud.launch(memory.token.as_deref().expect("it was just stored"));
            memory.update(|memory| memory.instance = Some(instance)).await?;
        }
        memory.update(|_| {}).await?;
        ctx.set_status(FleetStatus { size: 1, note: memory.instance.clone() }).await
    }

    fn start(&self, world: &World) -> Running {
        let manager = world.manager().controller(Controller::new(self.clone()).rbac(Permissions::workspace));
        assert!(manager.describe().controllers[0].workspace, "the generated role has the rules");
        run(manager)
    }

    async fn until_reported(&self, text: &str) {
        until(text, || async { self.errors.lock().iter().any(|error| error.contains(text)) }).await;
    }
}

async fn memory(world: &World) -> Option<ConfigMap> {
    world.ships().get_opt(NAME).await.expect("an answer")
}

async fn store(world: &World, annotations: &[(&str, &str)], text: &str) {
    let annotations = annotations.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let metadata = ObjectMeta { name: Some(NAME.into()), annotations: Some(annotations), ..ObjectMeta::default() };
    let data = Some([("memory.json".to_owned(), text.to_owned())].into());
    let config = ConfigMap { metadata, data, ..ConfigMap::default() };
    world.ships().create(&PostParams::default(), &config).await.expect("stored");
}

/// A crash after each write, and a lost answer to each write.
#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_starts_no_second_instance() {
    for survived in 0..=3 {
        let (world, launcher) = (World::new().await, Launcher::default());
        world.create_fleet("a", 1).await;
        world.faults.forget();
        let manager = launcher.start(&world);
        until("some writes", || async { world.faults.writes() >= survived }).await;
        manager.crash().await;
        let manager = launcher.start(&world);
        world.wait_for_size("a", 1).await;
        assert_eq!(launcher.cloud.instances(), 1, "after a crash at write {survived}");
        manager.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_response_starts_no_second_instance() {
    for lost in 0..3 {
        let (world, launcher) = (World::new().await, Launcher::default());
        let verbs = &[Verb::Create, Verb::Patch];
        let fault = world.faults.on(verbs, "configmaps").skip(lost).lose_response();
        let manager = launcher.start(&world);
        world.create_fleet("a", 1).await;
        world.wait_for_size("a", 1).await;
        assert_eq!(
            (launcher.cloud.instances(), fault.hits()),
            (1, usize::from(lost < 2)),
            "the answer to write {lost}"
        );
        manager.stop().await;
    }
}

/// Two writes for two changes, and none without a change.
#[tokio::test(start_paused = true)]
async fn an_unchanged_workspace_is_not_written_again() {
    let (world, launcher) = (World::new().await, Launcher::default());
    let manager = launcher.start(&world);
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    pass(60).await;
    world.faults.forget();
    let fleet = Patch::Merge(json!({"metadata": {"labels": {"woken": "yes"}}}));
    world.fleets().patch("a", &PatchParams::default(), &fleet).await.expect("patched");
    pass(60).await;
    assert_eq!(world.faults.writes(), 0);
    let stored = memory(&world).await.expect("it is stored");
    let fleet = world.fleets().get("a").await.expect("the fleet");
    let owner = &stored.owner_references()[0];
    assert_eq!((Some(owner.uid.as_str()), owner.controller), (fleet.metadata.uid.as_deref(), None));
    manager.stop().await;
}

/// Two replicas both believe that they lead: the decision of the second one is based on an outdated state.
#[tokio::test(start_paused = true)]
async fn a_second_writer_gets_a_conflict() {
    let (world, launcher) = (World::new().await, Launcher::default());
    let slow = world.faults.on(&[Verb::Create], "configmaps").delay(Duration::from_secs(5));
    let first = launcher.start(&world);
    world.create_fleet("a", 1).await;
    until("the first is under way", || async { slow.hits() == 1 }).await;
    let second = launcher.start(&world);
    world.wait_for_size("a", 1).await;
    launcher.until_reported("already exists").await;
    assert_eq!(launcher.cloud.instances(), 1);
    first.stop().await;
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_workspace_changed_by_others_is_not_overwritten() {
    let (world, launcher) = (World::new().await, Launcher::default());
    let slow = world.faults.on(&[Verb::Patch], "configmaps").delay(Duration::from_secs(5));
    let manager = launcher.start(&world);
    world.create_fleet("a", 1).await;
    until("the second write is under way", || async { slow.hits() == 1 }).await;
    let other = Patch::Merge(json!({"data": {"memory.json": "{\"instance\":\"i-other\"}"}}));
    world.ships().patch(NAME, &PatchParams::default(), &other).await.expect("patched");
    world.wait_for_size("a", 1).await;
    launcher.until_reported("patch configmaps default/a.fleet.workspace").await;
    let note = world.fleets().get("a").await.expect("the fleet").status.and_then(|status| status.note);
    assert_eq!(note.as_deref(), Some("i-other"), "the decision was taken again");
    manager.stop().await;
}

/// No garbage collector runs here, so the workspace of the earlier object still exists.
#[tokio::test(start_paused = true)]
async fn a_recreated_object_starts_with_an_empty_workspace() {
    let (world, launcher) = (World::new().await, Launcher::default());
    let manager = launcher.start(&world);
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    let before = memory(&world).await.expect("it is stored");
    world.fleets().delete("a", &DeleteParams::default()).await.expect("deleted");
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    assert_eq!(launcher.cloud.instances(), 2);
    let after = memory(&world).await.expect("it is stored");
    assert_ne!((before.uid(), &before.owner_references()[0].uid), (after.uid(), &after.owner_references()[0].uid));
    manager.stop().await;
}

/// A replica whose cache still has the earlier object doesn't touch the workspace of the later one.
#[tokio::test(start_paused = true)]
async fn a_stale_replica_does_not_delete_the_workspace_of_a_recreated_object() {
    let (world, launcher) = (World::new().await, Launcher::default());
    world.create_fleet("a", 1).await;
    let hold = world.faults.on(&[Verb::Watch], "fleets").always().hold();
    let slow = world.faults.on(&[Verb::Get], "configmaps").delay(Duration::from_secs(5));
    let manager = launcher.start(&world);
    until("the workspace is about to be read", || async { slow.hits() == 1 }).await;
    world.fleets().delete("a", &DeleteParams::default()).await.expect("deleted");
    let later = world.create_fleet("a", 1).await;
    let uid = later.metadata.uid.clone().unwrap_or_default();
    store(&world, &[("kubewright.dev/workspace-of", &uid)], "{\"instance\":\"i-later\"}").await;
    launcher.until_reported("Fleet default/a is being deleted").await;
    assert_eq!(launcher.cloud.instances(), 0);
    drop(hold);
    until("the later one is seen", || async {
        let fleet = world.fleets().get("a").await.expect("the fleet");
        fleet.status.and_then(|status| status.note).as_deref() == Some("i-later")
    })
    .await;
    assert_eq!(launcher.cloud.instances(), 0);
    manager.stop().await;
}

/// A replica whose cache doesn't know that the object is being deleted. In a deletion in the foreground, the workspace
/// is gone before the object.
#[tokio::test(start_paused = true)]
async fn a_stale_replica_creates_no_workspace_for_an_object_that_is_being_deleted() {
    let (world, launcher) = (World::new().await, Launcher::default());
    world.create_fleet("a", 1).await;
    let finalizers = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/held"]}}));
    world.fleets().patch("a", &PatchParams::default(), &finalizers).await.expect("patched");
    let _hold = world.faults.on(&[Verb::Watch], "fleets").always().hold();
    let slow = world.faults.on(&[Verb::Get], "configmaps").delay(Duration::from_secs(5));
    let manager = launcher.start(&world);
    until("the workspace is about to be read", || async { slow.hits() == 1 }).await;
    world.fleets().delete("a", &DeleteParams::foreground()).await.expect("deleted");
    launcher.until_reported("Fleet default/a is being deleted").await;
    assert_eq!(launcher.cloud.instances(), 0);
    assert!(memory(&world).await.is_none());
    manager.stop().await;
}

/// The object is deleted between the read that confirms it and the creation.
#[tokio::test(start_paused = true)]
async fn a_workspace_that_is_created_during_a_deletion_is_deleted_again() {
    let (world, launcher) = (World::new().await, Launcher::default());
    world.create_fleet("a", 1).await;
    let _hold = world.faults.on(&[Verb::Watch], "fleets").always().hold();
    let slow = world.faults.on(&[Verb::Create], "configmaps").delay(Duration::from_secs(5));
    let manager = launcher.start(&world);
    until("the workspace is about to be created", || async { slow.hits() == 1 }).await;
    world.fleets().delete("a", &DeleteParams::default()).await.expect("deleted");
    launcher.until_reported("Fleet default/a is being deleted").await;
    assert_eq!(launcher.cloud.instances(), 0);
    assert!(memory(&world).await.is_none());
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_config_map_is_never_used_as_workspace() {
    let (world, launcher) = (World::new().await, Launcher::default());
    store(&world, &[], "{\"instance\":\"i-foreign\"}").await;
    let manager = launcher.start(&world);
    world.create_fleet("a", 1).await;
    launcher.until_reported("config map default/a.fleet.workspace is not a workspace of Fleet default/a: rename").await;
    assert_eq!(launcher.cloud.instances(), 0);
    assert!(memory(&world).await.expect("it is there").annotations().is_empty());
    world.ships().delete(NAME, &DeleteParams::default()).await.expect("deleted");
    world.wait_for_size("a", 1).await;
    manager.stop().await;
}

/// Content from an incompatible version causes an error that says what to do. With `or_default` it counts as empty.
#[tokio::test(start_paused = true)]
async fn invalid_workspace_content_is_an_error_or_replaced_by_the_default() {
    for or_default in [false, true] {
        let (world, launcher) = (World::new().await, Launcher { or_default, ..Launcher::default() });
        let fleet = world.create_fleet("a", 1).await;
        let uid = fleet.metadata.uid.unwrap_or_default();
        store(&world, &[("kubewright.dev/workspace-of", &uid)], "{\"instance\": 7}").await;
        let manager = launcher.start(&world);
        if or_default {
            world.wait_for_size("a", 1).await;
            assert_eq!(launcher.cloud.instances(), 1);
        } else {
            launcher
                .until_reported("can't decode the workspace in config map default/a.fleet.workspace: invalid type")
                .await;
            assert!(launcher.errors.lock()[0].ends_with("replace it with `or_default`, or delete the config map"));
            assert_eq!(launcher.cloud.instances(), 0);
        }
        manager.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_workspace_has_a_maximum_size() {
    let (world, launcher) = (World::new().await, Launcher { ballast: LARGEST_WORKSPACE, ..Launcher::default() });
    let manager = launcher.start(&world);
    world.create_fleet("a", 1).await;
    launcher.until_reported("more than 262144: store less").await;
    assert_eq!((launcher.cloud.instances(), memory(&world).await), (0, None));
    manager.stop().await;
}

/// Writes the workspace once, and clears it when the size is zero.
struct Forgetful;

impl Reconciler<Fleet> for Forgetful {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let size = fleet.spec.size;
        let mut memory = ctx.workspace::<Memory>().await?;
        match size {
            0 => memory.forget().await?,
            _ => memory.update(|memory| memory.token = Some("kept".into())).await?,
        }
        assert_eq!(memory.token.is_some(), size > 0);
        let elsewhere = ctx.workspace::<Memory>().in_namespace("missing").await?;
        let error = elsewhere.token.is_some();
        assert!(!error, "another namespace, another memory");
        ctx.set_status(FleetStatus { size, note: None }).await?;
        Ok(Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn a_workspace_can_be_deleted() {
    let world = World::new().await;
    let manager = run(world.manager().controller(Controller::new(Forgetful)));
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    assert!(memory(&world).await.is_some());
    world.resize("a", 0).await;
    world.wait_for_size("a", 0).await;
    assert!(memory(&world).await.is_none());
    manager.stop().await;
}

#[test]
fn the_errors_say_what_to_do() {
    let error = WorkspaceError::NoNamespace { owner: "Node a".into() };
    assert_eq!(
        ClientError::from(error).to_string(),
        "Node a is cluster-scoped: set the namespace of its workspace with `in_namespace`"
    );
}
