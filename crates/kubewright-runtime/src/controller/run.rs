//! One reconcile of one key: finds the object, handles the finalizer, calls the reconciler.

use std::{
    error::Error,
    marker::PhantomData,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use tokio_util::sync::CancellationToken;

use super::{Reconciler, error::ScopeChanged};
use crate::{
    action::{Action, Retry},
    client::{ClientError, explain, is_conflict, retry_after},
    context::{Context, LiveViews, ReconcileContext, Services, WriteTracker},
    finalizer,
    object::{AnyObject, KindName, KindScope, ObjectKey},
};

/// The arguments of a run.
pub(super) struct Run {
    pub(super) services: Arc<Services>,
    pub(super) key: ObjectKey,
    pub(super) views: LiveViews,
    pub(super) tracker: WriteTracker,
    pub(super) cancel: CancellationToken,
}

/// A failed reconcile.
#[derive(Debug)]
pub(super) struct Failure {
    /// The error with its sources.
    pub(super) message: String,
    pub(super) retry: Retry,
    /// The `Retry-After` of the API server.
    pub(super) retry_after: Option<Duration>,
    /// Whether it is a conflict, which is expected and not logged as an error.
    pub(super) is_conflict: bool,
}

impl Failure {
    pub(super) fn new(error: &(dyn Error + 'static), retry: Retry) -> Self {
        Self { message: explain(error), retry, retry_after: retry_after(error), is_conflict: is_conflict(error) }
    }
}

/// A reconciler, without the type of its kind.
pub(super) trait Work: Send + Sync {
    fn run(self: Arc<Self>, run: Run) -> BoxFuture<'static, Result<Action, Failure>>;
}

/// A [`Reconciler`] as [`Work`].
pub(super) struct Typed<K: AnyObject, R, C> {
    reconciler: R,
    kind: K::DynamicType,
    name: KindName,
    /// Whether the objects are namespaced. The first one tells, if the kind is known only at run time.
    is_namespaced: OnceLock<bool>,
    context: PhantomData<fn() -> C>,
}

impl<K: AnyObject, R: Reconciler<K, C>, C: ReconcileContext<K>> Work for Typed<K, R, C> {
    fn run(self: Arc<Self>, run: Run) -> BoxFuture<'static, Result<Action, Failure>> {
        async move { self.work(run).await }.boxed()
    }
}

impl<K: AnyObject, R: Reconciler<K, C>, C: ReconcileContext<K>> Typed<K, R, C> {
    pub(super) fn new(reconciler: R, kind: K::DynamicType) -> Self {
        let is_namespaced = match KindScope::of::<K>() {
            KindScope::Cluster => false.into(),
            KindScope::Namespaced => true.into(),
            KindScope::Unknown => OnceLock::new(),
        };
        Self { reconciler, name: KindName::named::<K>(&kind), kind, is_namespaced, context: PhantomData }
    }

    async fn work(&self, run: Run) -> Result<Action, Failure> {
        let Run { services, key, views, tracker, cancel } = run;
        let context = Context::<K>::new(services, self.kind.clone(), key, views, cancel, tracker);
        let objects = context.declared::<K>(&self.name).map_err(|error| refused(&error))?;
        let Some(object) = objects.get(context.key()) else {
            let key = context.key().clone();
            let deleted = self.reconciler.deleted(&key, &C::wrap(context)).await;
            return deleted.map(|()| Action::await_change()).map_err(|error| self.failed(error));
        };
        self.check_scope(&context)?;
        let finalized = R::FINALIZER.is_some_and(|finalizer| finalizer::contains(object.as_ref(), finalizer));
        match (R::FINALIZER, object.meta().deletion_timestamp.is_some()) {
            (Some(finalizer), true) if finalized => self.clean_up(&object, context, finalizer).await,
            (None, true) => {
                let context = C::wrap(context.with_object(object.clone()));
                self.reconciler.cleanup(&object, &context).await.map_err(|error| self.failed(error))
            }
            (Some(_), true) => Ok(Action::await_change()),
            (Some(finalizer), false) if !finalized => {
                let object = context.add_own_finalizer(object.as_ref(), finalizer).await;
                let object = Arc::new(object.map_err(|error| refused(&error))?);
                self.reconcile(&object, context).await
            }
            (_, false) => self.reconcile(&object, context).await,
        }
    }

    /// Checks that the object has the scope that the controller was made for: another definition may have replaced that
    /// of the kind.
    fn check_scope(&self, context: &Context<K>) -> Result<(), Failure> {
        let is_namespaced = context.key().namespace().is_some();
        if *self.is_namespaced.get_or_init(|| is_namespaced) == is_namespaced {
            return Ok(());
        }
        let error =
            ScopeChanged { kind: self.name.to_string(), controller: context.controller().into(), is_namespaced };
        Err(Failure::new(&error, Retry::Backoff))
    }

    async fn reconcile(&self, object: &Arc<K>, context: Context<K>) -> Result<Action, Failure> {
        let context = C::wrap(context.with_object(object.clone()));
        self.reconciler.reconcile(object, &context).await.map_err(|error| self.failed(error))
    }

    async fn clean_up(&self, object: &Arc<K>, context: Context<K>, finalizer: &str) -> Result<Action, Failure> {
        let context = C::wrap(context.with_object(object.clone()));
        let action = self.reconciler.cleanup(object, &context).await.map_err(|error| self.failed(error))?;
        if action.requeue.is_none() {
            let removed = context.context().remove_own_finalizer(object.as_ref(), finalizer).await;
            removed.map_err(|error| refused(&error))?;
        }
        Ok(action)
    }

    fn failed(&self, error: R::Error) -> Failure {
        let retry = self.reconciler.error_policy(&error);
        let error: Box<dyn Error + Send + Sync> = error.into();
        Failure::new(error.as_ref(), retry)
    }
}

fn refused(error: &ClientError) -> Failure {
    Failure::new(error, Retry::Backoff)
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        io,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use bytes::Bytes;
    use futures::{StreamExt, stream};
    use http::{Method, Request, Response};
    use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
    use hyper::body::Frame;
    use kube::{Client, CustomResource, client::Body};
    use parking_lot::Mutex;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::{Value, json};

    use super::*;
    use crate::{controller::Controller, manager::Manager};

    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, CustomResource)]
    #[kube(group = "example.com", version = "v1", kind = "Pot", namespaced, status = "PotStatus")]
    struct PotSpec {}

    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
    struct PotStatus {
        phase: String,
    }

    /// Writes the number of the attempt into the status of the object that it cleans up.
    #[derive(Clone, Default)]
    struct Potter(Arc<AtomicUsize>);

    impl Reconciler<Pot> for Potter {
        const FINALIZER: Option<&'static str> = Some("example.com/pot");
        type Error = ClientError;

        async fn reconcile(&self, _: &Pot, _: &Context<Pot>) -> Result<Action, ClientError> {
            Ok(Action::await_change())
        }

        async fn cleanup(&self, _: &Pot, ctx: &Context<Pot>) -> Result<Action, ClientError> {
            let attempt = self.0.fetch_add(1, Ordering::SeqCst) + 1;
            ctx.set_status(PotStatus { phase: format!("Deleting, attempt {attempt}") }).await?;
            Ok(Action::await_change())
        }
    }

    /// The writes, and the version of the object with its status. Without finalizers it is gone.
    type Stored = Arc<Mutex<(Vec<String>, u64, Value, bool)>>;

    fn pot((_, version, status, _): &(Vec<String>, u64, Value, bool)) -> Value {
        json!({"apiVersion": "example.com/v1", "kind": "Pot", "spec": {}, "status": status, "metadata": {
            "name": "a", "namespace": "default", "uid": "u", "resourceVersion": version.to_string(), "generation": 2,
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/pot"],
        }})
    }

    async fn answer(stored: Stored, request: Request<Body>) -> Response<UnsyncBoxBody<Bytes, io::Error>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |code: u16, value: Value| {
            let body = StreamBody::new(stream::iter([Ok(Frame::data(Bytes::from(value.to_string())))])).boxed_unsync();
            Response::builder().status(code).body(body).expect("a response")
        };
        let refused = |code: u16, reason: &str| json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason});
        let query = parts.uri.query().unwrap_or_default();
        if parts.method == Method::PATCH {
            let mut stored = stored.lock();
            let wanted = body["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            let what = if parts.uri.path().ends_with("/status") { "status" } else { "finalizers" };
            let is_conflict = wanted != stored.1.to_string();
            stored.0.push(format!("{what}{}", if is_conflict { ": conflict" } else { "" }));
            if is_conflict {
                return text(409, refused(409, "Conflict"));
            }
            stored.1 += 1;
            match what {
                "status" => stored.2 = body["status"].clone(),
                _ => stored.3 = true,
            }
            return text(200, pot(&stored));
        }
        if query.contains("watch=true") {
            let since = stored.lock().1;
            let events = stream::unfold((stored, since), |(stored, seen)| async move {
                loop {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    let now = stored.lock().clone();
                    if now.1 > seen {
                        let event = json!({"type": if now.3 { "DELETED" } else { "MODIFIED" }, "object": pot(&now)});
                        return Some((Ok(Frame::data(Bytes::from(format!("{event}\n")))), (stored, now.1)));
                    }
                }
            });
            return Response::new(StreamBody::new(events.boxed()).boxed_unsync());
        }
        let stored = stored.lock();
        match parts.uri.path() {
            "/apis/example.com/v1/pots" => {
                let items = if stored.3 { vec![] } else { vec![pot(&stored)] };
                text(
                    200,
                    json!({"kind": "PotList", "apiVersion": "example.com/v1", "items": items,
                    "metadata": {"resourceVersion": stored.1.to_string()}}),
                )
            }
            _ => text(404, refused(404, "NotFound")),
        }
    }

    /// The removal of the finalizer requires the resource version, which the write of the status has changed.
    #[tokio::test(start_paused = true)]
    async fn a_cleanup_that_writes_the_status_is_called_once() {
        let stored: Stored = Arc::new(Mutex::new((Vec::new(), 5, Value::Null, false)));
        let served = stored.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = answer(served.clone(), request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let potter = Potter::default();
        let clock = crate::clock::VirtualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let manager = Manager::new(Client::new(service, "default")).clock(clock);
        let manager = manager.controller(Controller::new(potter.clone()));
        manager.run_until(tokio::time::sleep(Duration::from_secs(600))).await.expect("it ends well");
        let stored = stored.lock();
        assert!(potter.0.load(Ordering::SeqCst) > 0, "it runs");
        let (first, count) = (&stored.0[..stored.0.len().min(6)], stored.0.len());
        assert!(stored.3, "the object is still held, by {count} writes: {first:?}");
        assert_eq!(stored.0, ["status", "finalizers"]);
    }
}
