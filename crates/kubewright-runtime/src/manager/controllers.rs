//! Controllers that are added to a manager and removed from it while it runs.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinError, JoinSet},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::{Manager, ManagerError, Prepare, handles};
use crate::{
    cache::{Kind, Unsynced},
    controller::{Controller, ControllerError, Environment, Index, Prepared},
    object::{AnyObject, KindName},
};

/// Adds controllers to a manager while it runs, and removes them: for kinds that are known only at run time, such as
/// those of CustomResourceDefinitions that a reconcile installs (controller-runtime: `Manager.Add`, which removes
/// nothing). From [`Manager::controllers`]. Cheap to clone.
///
/// A controller that is added works as those that the manager was built with: on the leader or for the keys of the
/// replica, with the shared cache, and with traces and metrics under its name. Kinds that are cached already aren't
/// watched again. With a controller go its queue, metrics and traces, and the watches and cached objects of kinds that
/// nothing else uses.
///
/// The kinds aren't in [`Manager::describe`]: add the rules for them by [`Manager::policy_rule`]. They don't affect
/// readiness. An index of a kind that others use stays until nothing uses the kind.
///
/// ```
/// # use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
/// # use kube::core::{ApiResource, DynamicObject};
/// # use kubewright_runtime::{action::Action, context::Context, controller::{Controller, Reconciler}};
/// # use kubewright_runtime::manager::{Controllers, ManagerError};
/// # struct Instances;
/// # impl Reconciler<DynamicObject> for Instances {
/// #     type Error = ManagerError;
/// #     async fn reconcile(&self, _: &DynamicObject, _: &Context<DynamicObject>) -> Result<Action, ManagerError> {
/// #         Ok(Action::await_change())
/// #     }
/// # }
/// # fn served(definition: &CustomResourceDefinition) -> ApiResource { ApiResource::erase::<CustomResourceDefinition>(&()) }
/// /// Reconciles the objects of each definition.
/// struct Definitions {
///     controllers: Controllers, // manager.controllers()
/// }
///
/// impl Reconciler<CustomResourceDefinition> for Definitions {
///     type Error = ManagerError;
///
///     async fn reconcile(
///         &self,
///         definition: &CustomResourceDefinition,
///         ctx: &Context<CustomResourceDefinition>,
///     ) -> Result<Action, ManagerError> {
///         if !self.controllers.contains(ctx.key().name()) {
///             let controller = Controller::<DynamicObject>::new_with(Instances, served(definition));
///             self.controllers.add(controller.name(ctx.key().name())).await?;
///         }
///         Ok(Action::await_change())
///     }
///
///     async fn cleanup(
///         &self,
///         _: &CustomResourceDefinition,
///         ctx: &Context<CustomResourceDefinition>,
///     ) -> Result<Action, ManagerError> {
///         self.controllers.remove(ctx.key().name()).await;
///         Ok(Action::await_change())
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Controllers {
    commands: mpsc::UnboundedSender<Command>,
    added: Added,
}

/// The controllers that were added and not removed, with the kinds that they declare.
type Added = Arc<Mutex<BTreeMap<String, Vec<Arc<Kind>>>>>;

enum Command {
    Add(Box<dyn Prepare>, oneshot::Sender<Result<ControllerEnd, ManagerError>>),
    Remove(String, oneshot::Sender<bool>),
}

/// The end of a controller that was [added](Controllers::add).
#[derive(Debug)]
pub struct ControllerEnd(oneshot::Receiver<Result<(), ControllerError>>);

impl ControllerEnd {
    /// Waits until the controller has been removed, or has ended with an error. It may be dropped: the error is also
    /// logged.
    ///
    /// # Errors
    /// That with which the controller has ended. Only this controller has: the manager and its other controllers go on.
    pub async fn wait(self) -> Result<(), ControllerError> {
        // Dropped with a manager that has crashed.
        self.0.await.unwrap_or(Ok(()))
    }
}

impl fmt::Debug for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controllers").field("added", &self.names()).finish_non_exhaustive()
    }
}

impl Controllers {
    /// Adds a controller, which starts to fill its caches at once. Waits until the manager runs.
    ///
    /// # Errors
    /// [`ManagerError::SameName`], [`ManagerError::SameIndex`]; [`ManagerError::Ended`] if the manager has ended or was
    /// dropped.
    pub async fn add<K: AnyObject>(&self, controller: Controller<K>) -> Result<ControllerEnd, ManagerError> {
        let name = controller.describe().name;
        let (sender, added) = oneshot::channel();
        let ended = || ManagerError::Ended(name.clone());
        self.commands.send(Command::Add(Box::new(controller), sender)).map_err(|_| ended())?;
        added.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Removes a controller that was [added](Controllers::add), after its reconciles have ended, or were aborted after
    /// the manager's [grace period](Manager::graceful_shutdown). It may be added again then. Returns whether there was
    /// one of that name.
    ///
    /// A reconcile of the same controller must not wait for it, since it waits for the reconcile.
    pub async fn remove(&self, name: &str) -> bool {
        let (sender, removed) = oneshot::channel();
        // A manager that has ended has no controllers.
        self.commands.send(Command::Remove(name.into(), sender)).is_ok() && removed.await.unwrap_or_default()
    }

    /// Returns the names of the controllers that were added and have not ended, in order.
    pub fn names(&self) -> Vec<String> {
        self.added.lock().keys().cloned().collect()
    }

    /// Returns whether a controller of this name was added and has not ended.
    pub fn contains(&self, name: &str) -> bool {
        self.added.lock().contains_key(name)
    }

    /// Returns why kinds of a controller that was added can't be listed or watched now, with the last error of each: a
    /// kind whose definition was deleted, or a role that doesn't allow it.
    pub fn failures(&self, name: &str) -> Vec<Unsynced> {
        let kinds = self.added.lock().get(name).cloned().unwrap_or_default();
        kinds.iter().filter(|kind| kind.failure().is_some()).map(|kind| kind.lacking()).collect()
    }
}

/// The requests to add controllers that a manager gets while it runs.
#[derive(Default)]
pub(super) struct Additions(OnceLock<(Controllers, Mutex<Option<mpsc::UnboundedReceiver<Command>>>)>);

impl fmt::Debug for Additions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Additions").field(&self.0.get().map(|(controllers, _)| controllers)).finish()
    }
}

impl Manager {
    /// Returns the handle by which controllers are added to the running manager, and removed from it.
    pub fn controllers(&self) -> Controllers {
        let (controllers, _) = self.additions.0.get_or_init(|| {
            let (commands, received) = mpsc::unbounded_channel();
            (Controllers { commands, added: Added::default() }, Mutex::new(Some(received)))
        });
        controllers.clone()
    }
}

impl Additions {
    /// Returns the task that adds and removes controllers, if the manager has given a handle away. `known` are the
    /// manager's own controllers with their indexes.
    pub(super) fn supervisor(
        self,
        environment: &Environment,
        known: BTreeMap<String, Vec<(KindName, Index)>>,
        begun: CancellationToken,
        grace: Duration,
    ) -> Option<Supervisor> {
        let (controllers, commands) = self.0.into_inner()?;
        let (commands, environment) = (commands.into_inner()?, environment.clone());
        Some(Supervisor { commands, added: controllers.added, ..Supervisor::new(environment, known, begun, grace) })
    }
}

/// Runs the controllers that are added.
pub(super) struct Supervisor {
    commands: mpsc::UnboundedReceiver<Command>,
    added: Added,
    environment: Environment,
    /// All controllers with their indexes.
    known: BTreeMap<String, Vec<(KindName, Index)>>,
    /// Cancelled when controllers that need a leader may run.
    begun: CancellationToken,
    grace: Duration,
    running: JoinSet<String>,
    /// What ends the added controllers, and those who wait for the end.
    stops: BTreeMap<String, (CancellationToken, Vec<oneshot::Sender<bool>>)>,
}

impl Supervisor {
    /// Returns a supervisor that gets no requests.
    pub(super) fn new(
        environment: Environment,
        known: BTreeMap<String, Vec<(KindName, Index)>>,
        begun: CancellationToken,
        grace: Duration,
    ) -> Self {
        let (_, commands) = mpsc::unbounded_channel();
        let (added, running, stops) = (Added::default(), JoinSet::new(), BTreeMap::new());
        Self { commands, added, environment, known, begun, grace, running, stops }
    }

    /// Runs until `stop`, then until all controllers have ended.
    pub(super) async fn run(mut self, stop: CancellationToken, abort: CancellationToken) -> Result<(), ManagerError> {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = self.running.join_next() => self.ended(ended)?,
                Some(command) = self.commands.recv() => match command {
                    Command::Add(controller, answer) => {
                        // Whoever asked may not wait for the answer.
                        let _ = answer.send(self.add(controller, &stop, &abort));
                    }
                    Command::Remove(name, answer) => self.remove(&name, answer),
                },
            }
        }
        // Callers that asked too late get an error: they may be what is waited for.
        self.commands.close();
        while self.commands.try_recv().is_ok() {}
        while let Some(ended) = self.running.join_next().await {
            self.ended(ended)?;
        }
        Ok(())
    }

    pub(super) fn add(
        &mut self,
        controller: Box<dyn Prepare>,
        stop: &CancellationToken,
        abort: &CancellationToken,
    ) -> Result<ControllerEnd, ManagerError> {
        let (name, indexes) = (controller.describe().name, controller.indexes());
        if self.known.contains_key(&name) {
            return Err(ManagerError::SameName(name));
        }
        let known = self.known.iter().map(|(name, indexes)| (name.clone(), indexes.clone()));
        handles::check_indexes(known.chain([(name.clone(), indexes.clone())]))?;
        let (sender, end) = oneshot::channel();
        let stop = stop.child_token();
        let may_begin = if controller.needs_leader() { Some(self.begun.clone()) } else { None };
        let prepared = controller.prepare(&self.environment, true);
        self.added.lock().insert(name.clone(), prepared.kinds().to_vec());
        self.known.insert(name.clone(), indexes);
        self.stops.insert(name.clone(), (stop.clone(), Vec::new()));
        let run = run(name.clone(), prepared, may_begin, stop, abort.child_token(), self.grace, self.added.clone());
        self.running.spawn(async move {
            let result = run.await;
            if let Err(error) = &result {
                error!(controller = name, %error, "a controller that was added has ended");
            }
            let _ = sender.send(result);
            name
        });
        Ok(ControllerEnd(end))
    }

    fn remove(&mut self, name: &str, answer: oneshot::Sender<bool>) {
        match self.stops.get_mut(name) {
            Some((stop, waiting)) => {
                stop.cancel();
                waiting.push(answer);
            }
            None => {
                let _ = answer.send(false);
            }
        }
    }

    /// Forgets a controller that has ended.
    fn ended(&mut self, ended: Result<String, JoinError>) -> Result<(), ManagerError> {
        let name = ended.map_err(ManagerError::Task)?;
        self.known.remove(&name);
        let (_, waiting) = self.stops.remove(&name).unwrap_or_default();
        info!(controller = name, "removed");
        for answer in waiting {
            // Whoever asked may not wait for the answer.
            let _ = answer.send(true);
        }
        Ok(())
    }
}

/// Runs a controller until `stop`, once it may begin, then removes everything of it.
async fn run(
    name: String,
    prepared: Prepared,
    may_begin: Option<CancellationToken>,
    stop: CancellationToken,
    abort: CancellationToken,
    grace: Duration,
    added: Added,
) -> Result<(), ControllerError> {
    let (prepared, detach) = prepared.detachable();
    let begins = match may_begin {
        Some(begun) => stop.run_until_cancelled(begun.cancelled()).await.is_some(),
        None => true,
    };
    let result = if begins {
        let patience = async {
            stop.cancelled().await;
            sleep(grace).await;
            abort.cancel();
            std::future::pending().await
        };
        tokio::select! {
            biased;
            result = prepared.run(stop.clone(), abort.clone()) => result,
            never = patience => never,
        }
    } else {
        drop(prepared);
        Ok(())
    };
    added.lock().remove(&name);
    detach();
    result
}
