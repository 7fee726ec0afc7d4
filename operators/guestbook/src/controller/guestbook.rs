//! Runs the pods of a guestbook's page: one serves, and the others stand by.
//!
//! [`plan`] decides, [`report`] describes the result, [`children`] builds the wanted objects, and this module executes
//! the plan.
//!
//! * **The active pod** is defined solely by the selector of the Service, which selects one pod. A takeover is
//!   therefore one write, and two pods are never active at the same time, however many leaders there are. It precedes
//!   all other writes, with the Service's UID and version as preconditions.
//! * The cache decides whether anything has to be done, and live reads then decide the actual writes, so that a stale
//!   cache, a lost response or another leader causes neither too many pods nor the deletion of a wrong one. A steady
//!   Guestbook costs no requests.
//! * Pods and Services belong to the Guestbook by the UID of their controller. A Service of another owner is never
//!   changed.
//! * If the API server refuses a write, its message is reported, and the write is retried slowly. Pods that disappear
//!   as fast as they are created are replaced with back-off ([`kubewright::create_backoff`]).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, TryFutureExt, stream};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{api::ObjectMeta, core::Selector};
use kubewright::{
    create_backoff::{CreateBackoff, Decision},
    object::KindName,
    owner::{controller_of, is_controlled_by},
    prelude::*,
};
use parking_lot::Mutex;

use super::{
    children,
    config::{Config, ConfigMap},
    plan::{self, Plan, Step},
    report::{self, Problem, Problems},
};
use crate::api::v1::Guestbook;

/// The delay before a Guestbook with a stale cache is reconciled again. An event usually triggers a reconcile earlier.
const STALE_DELAY: Duration = Duration::from_secs(1);
/// The index of Guestbooks by the key of their ConfigMap.
const BY_CONFIG_MAP: &str = "spec.configMapName";

/// Returns the controller of Guestbooks.
pub(crate) fn controller() -> Controller<Guestbook> {
    Controller::<Guestbook>::new(GuestbookReconciler { memory: Mutex::default() })
        .owns::<Pod>()
        .watches::<Service>(|service, guestbooks| {
            // A change of a Service concerns the Guestbook that owns it, and the Guestbook of the same name.
            let key = ObjectKey::of(service);
            guestbooks.get(&key).map(|_| key).into_iter().collect()
        })
        .index::<Guestbook>(BY_CONFIG_MAP, |guestbook| {
            vec![config_map_of(&ObjectKey::of(guestbook), guestbook).to_string()]
        })
        .watches::<ConfigMap>(|config_map, guestbooks| {
            let users = guestbooks.indexed(BY_CONFIG_MAP, &ObjectKey::of(config_map).to_string());
            users.iter().map(|guestbook| ObjectKey::of(guestbook.as_ref())).collect()
        })
        .rbac(|role| role.allow(PolicyRule::of::<Service>([Verb::Create, Verb::Patch])))
        .concurrency(4)
}

fn config_map_of(key: &ObjectKey, guestbook: &Guestbook) -> ObjectKey {
    key.sibling(&guestbook.spec.config_map_name)
}

struct GuestbookReconciler {
    memory: Mutex<BTreeMap<ObjectKey, Memory>>,
}

/// The in-memory state of a Guestbook. Losing it only makes the next writes earlier.
#[derive(Default)]
struct Memory {
    /// The back-off of pod creations.
    pods: CreateBackoff,
    /// The back-off of writes that restore fields of the Service.
    service: CreateBackoff,
    /// The pod that the Service was most recently set to select.
    last_selected: Option<String>,
}

/// The objects of a Guestbook.
struct Objects {
    config: Config,
    service: Option<Arc<Service>>,
    pods: Vec<Arc<Pod>>,
    /// Whether an object had changed since it was read, so that some writes were skipped.
    is_stale: bool,
}

impl Objects {
    fn cached(guestbook: &Guestbook, ctx: &Context<Guestbook>) -> Result<Self, ClientError> {
        let config_map = ctx.get::<ConfigMap>(&config_map_of(ctx.key(), guestbook))?;
        Ok(Self {
            config: Config::of(config_map.as_deref()),
            service: ctx.get::<Service>(ctx.key())?,
            pods: ctx.children::<Pod>()?,
            is_stale: false,
        })
    }

    /// Reads the objects live. Returns `None` if the Guestbook differs from the cached one. Pods that lost their labels
    /// are only read from the cache.
    async fn live(guestbook: &Guestbook, cached: Self, ctx: &Context<Guestbook>) -> Result<Option<Self>, ClientError> {
        let now = ctx.live().get::<Guestbook>(ctx.key()).await?;
        let state = |it: &Guestbook| {
            (it.metadata.uid.clone(), it.metadata.generation, it.metadata.deletion_timestamp.is_some())
        };
        if now.as_ref().map(state) != Some(state(guestbook)) {
            return Ok(None);
        }
        let uid = guestbook.metadata.uid.as_deref().unwrap_or_default();
        let mut pods = ctx.live().list::<Pod>(&Selector::from_iter(children::labels(guestbook))).await?;
        for pod in &cached.pods {
            if !pods.iter().any(|listed| listed.metadata.name == pod.metadata.name) {
                pods.extend(ctx.live().get::<Pod>(&ObjectKey::of(pod.as_ref())).await?);
            }
        }
        let config_map = ctx.live().get::<ConfigMap>(&config_map_of(ctx.key(), guestbook)).await?;
        Ok(Some(Self {
            config: Config::of(config_map.as_ref()),
            service: ctx.live().get::<Service>(ctx.key()).await?.map(Arc::new),
            pods: pods.into_iter().filter(|pod| is_controlled_by(pod, uid)).map(Arc::new).collect(),
            is_stale: false,
        }))
    }

    fn plan(&self, guestbook: &Guestbook) -> Plan {
        plan::plan(guestbook, &self.config, self.service.as_deref(), self.pods.clone())
    }
}

impl Reconciler<Guestbook> for GuestbookReconciler {
    type Error = ClientError;

    async fn reconcile(&self, guestbook: &Guestbook, ctx: &Context<Guestbook>) -> Result<Action, ClientError> {
        let mut objects = Objects::cached(guestbook, ctx)?;
        let plan = objects.plan(guestbook);
        let problems = self.problems(guestbook, &plan, objects.service.as_deref(), ctx);
        let writes_service = plan.writes_service() && problems.service.is_none();
        if writes_service || plan.changes_pods() || (plan.create > 0 && problems.pods.is_none()) {
            let Some(live) = Objects::live(guestbook, objects, ctx).await? else {
                return Ok(Action::requeue_after(STALE_DELAY));
            };
            objects = live;
            self.write_service(guestbook, &mut objects, ctx).await?;
            self.change_pods(guestbook, &mut objects, ctx).await?;
            self.create(guestbook, &mut objects, ctx).await?;
        }
        let plan = objects.plan(guestbook);
        let problems = self.problems(guestbook, &plan, objects.service.as_deref(), ctx);
        let status = report::status(guestbook, &objects.config, &plan, &problems, ctx.now());
        let warnings = report::warnings(guestbook.status.as_ref(), &status);
        ctx.set_status(status).await?;
        warnings.into_iter().for_each(|warning| ctx.record(warning));
        let wait = problems.wait().into_iter().chain(objects.is_stale.then_some(STALE_DELAY)).min();
        Ok(wait.map_or(Action::await_change(), Action::requeue_after))
    }

    async fn deleted(&self, key: &ObjectKey, _: &Context<Guestbook>) -> Result<(), ClientError> {
        self.memory.lock().remove(key);
        Ok(())
    }
}

impl GuestbookReconciler {
    /// Returns the problems that currently prevent planned writes.
    fn problems(
        &self,
        guestbook: &Guestbook,
        plan: &Plan,
        service: Option<&Service>,
        ctx: &Context<Guestbook>,
    ) -> Problems {
        self.remember(ctx, |memory| {
            let (edition, size) = (edition(guestbook, plan), size(guestbook));
            let restores = memory.last_selected == plan.chosen;
            let of_service = |backoff: &mut CreateBackoff| match backoff.decide(edition, 1, ctx.monotonic()) {
                Decision::Refused(wait, message) => Some(Problem::Refused(wait, message)),
                Decision::Slow(wait) if restores => Some(Problem::Slow(wait)),
                Decision::Slow(_) | Decision::Create => None,
            };
            let of_pods = |backoff: &mut CreateBackoff| match backoff.decide(edition, size, ctx.monotonic()) {
                Decision::Refused(wait, message) => Some(Problem::Refused(wait, message)),
                Decision::Slow(wait) => Some(Problem::Slow(wait)),
                Decision::Create => None,
            };
            Problems {
                service: match (plan.service, service) {
                    (Step::Foreign, Some(service)) => Some(Problem::Taken(taken(service))),
                    (Step::Keep | Step::Foreign, _) => None,
                    (Step::Create | Step::Apply, _) => of_service(&mut memory.service),
                },
                pods: if plan.create > 0 { of_pods(&mut memory.pods) } else { None },
            }
        })
    }

    /// Makes the Service select the chosen pod.
    async fn write_service(
        &self,
        guestbook: &Guestbook,
        objects: &mut Objects,
        ctx: &Context<Guestbook>,
    ) -> Result<(), ClientError> {
        let plan = objects.plan(guestbook);
        if !plan.writes_service() || self.problems(guestbook, &plan, objects.service.as_deref(), ctx).service.is_some()
        {
            return Ok(());
        }
        let mut service = children::service(guestbook, plan.chosen.as_deref());
        let answer = match &objects.service {
            None => ctx.get_or_create_child(service).await,
            Some(present) => {
                service.metadata.uid = present.metadata.uid.clone();
                service.metadata.resource_version = present.metadata.resource_version.clone();
                ctx.apply_child(service).force().await
            }
        };
        match answer {
            Ok(service) => {
                self.remember(ctx, |memory| {
                    if memory.last_selected == plan.chosen {
                        memory.service.created(1, 1, ctx.monotonic());
                    }
                    memory.last_selected.clone_from(&plan.chosen);
                });
                objects.service = Some(Arc::new(service));
                if let (Some(before), Some(after)) = (&plan.present, &plan.chosen)
                    && before != after
                {
                    ctx.record(Event::normal("TakenOver", format!("pod {after:?} serves in place of {before:?}")));
                }
                Ok(())
            }
            Err(error) if error.is_conflict() || matches!(error, ClientError::NameTaken { .. }) => {
                objects.is_stale = true;
                Ok(())
            }
            Err(error) => {
                let Some(message) = error.refusal().map(str::to_owned) else { return Err(error) };
                self.remember(ctx, |memory| memory.service.refused(message, ctx.monotonic()));
                Ok(())
            }
        }
    }

    /// Deletes superfluous and outdated pods, and restores lost labels.
    async fn change_pods(
        &self,
        guestbook: &Guestbook,
        objects: &mut Objects,
        ctx: &Context<Guestbook>,
    ) -> Result<(), ClientError> {
        let mut plan = objects.plan(guestbook);
        if plan.writes_service() {
            // The pod that the Service still selects, because the Service couldn't be written, is kept.
            plan.delete.retain(|pod| pod.metadata.name != plan.present);
        }
        for pod in &plan.delete {
            match ctx.delete(pod.as_ref()).await {
                Ok(()) => objects.pods.retain(|other| other.metadata.uid != pod.metadata.uid),
                Err(error) if error.is_conflict() => objects.is_stale = true,
                Err(error) => return Err(error),
            }
        }
        for pod in plan.relabel.iter().filter(|pod| objects.pods.contains(pod)) {
            match ctx.apply(&labelled(guestbook, pod)).force().await {
                Ok(_) => {}
                Err(error) if error.is_conflict() || error.is_not_found() => objects.is_stale = true,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Creates the missing pods: first one, and the others if that succeeds.
    async fn create(
        &self,
        guestbook: &Guestbook,
        objects: &mut Objects,
        ctx: &Context<Guestbook>,
    ) -> Result<(), ClientError> {
        let plan = objects.plan(guestbook);
        let problems = self.problems(guestbook, &plan, objects.service.as_deref(), ctx);
        let Some(revision) = plan.revision.as_deref().filter(|_| problems.pods.is_none()) else { return Ok(()) };
        let before = objects.pods.len();
        let mut failure = None;
        for batch in [plan.create.min(1), plan.create.saturating_sub(1)] {
            let pods = (0..batch).map(|_| {
                let pod = children::pod(guestbook, revision, plan.address.as_deref(), ctx.random());
                let name = pod.name_any();
                ctx.create_child(pod).map_err(|error| (name, error)).boxed()
            });
            let answers: Vec<_> = stream::iter(pods.collect::<Vec<_>>()).buffered(10).collect().await;
            for answer in answers {
                match answer {
                    Ok(pod) => objects.pods.push(Arc::new(pod)),
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
            if failure.is_some() {
                break;
            }
        }
        let created = objects.pods.len() - before;
        self.remember(ctx, |memory| memory.pods.created(created, size(guestbook), ctx.monotonic()));
        match failure {
            None => Ok(()),
            Some((_, error)) if error.is_already_exists() => {
                objects.is_stale = true;
                Ok(())
            }
            Some((pod, error)) => {
                let Some(message) = error.refusal() else { return Err(error) };
                // The message must not contain the generated name, since it would change with every attempt.
                let message = message.replace(&pod, &format!("{}-*", guestbook.name_any()));
                self.remember(ctx, |memory| memory.pods.refused(message, ctx.monotonic()));
                Ok(())
            }
        }
    }

    fn remember<T>(&self, ctx: &Context<Guestbook>, change: impl FnOnce(&mut Memory) -> T) -> T {
        change(self.memory.lock().entry(ctx.key().clone()).or_default())
    }
}

/// Returns a number that changes with everything that pods are created from.
fn edition(guestbook: &Guestbook, plan: &Plan) -> Option<i64> {
    let revision = plan.revision.as_ref().and_then(|revision| u64::from_str_radix(revision, 16).ok());
    guestbook.metadata.generation.map(|generation| generation ^ revision.unwrap_or_default().cast_signed())
}

fn size(guestbook: &Guestbook) -> usize {
    usize::try_from(guestbook.spec.size).unwrap_or(0)
}

/// Returns the labels to apply to a pod. The UID is included, so that a deleted pod isn't recreated.
fn labelled(guestbook: &Guestbook, pod: &Pod) -> Pod {
    let metadata = ObjectMeta {
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        uid: pod.metadata.uid.clone(),
        labels: Some(children::pod_labels(guestbook, &pod.name_any())),
        ..ObjectMeta::default()
    };
    Pod { metadata, ..Pod::default() }
}

/// Returns a message about the owner of the Service that has the Guestbook's name.
fn taken(service: &Service) -> String {
    let whose = controller_of(service).map_or("nobody".into(), |owner| format!("{} {}", owner.kind, owner.name));
    let (kind, key) = (KindName::of::<Service>(), ObjectKey::of(service));
    format!("{kind} {key} exists and is controlled by {whose}; it is not taken over, and no pod serves")
}
