//! Traces: the last reconciles of each key, their triggers and their effects.
//!
//! A [`Trace`] contains the triggers of a reconcile (with the changed fields), its reads and writes, its outcome, and
//! when the key is due again. [`Traces`] keeps the traces of a manager's controllers in bounded memory ([`Limits`]),
//! unless tracing is disabled ([`Traces::off`], `--traces=false`). It costs a few microseconds per reconcile.
//!
//! The manager serves them over plain HTTP at the port of its probes, on loopback:
//!
//! | path | content |
//! |---|---|
//! | `/debug/traces` | the controllers: their phase, the number of waiting keys, the number of traces ([`Overview`]) |
//! | `/debug/traces/{controller}` | a controller with its last hundred traces, or `?limit=` ([`ControllerPage`]) |
//! | `/debug/traces/{controller}/{namespace}/{name}` | the traces of a key, and its present state ([`KeyPage`]); for a cluster-scoped kind `/{name}` |
//!
//! The responses are these types as JSON. The format is stable: its `version` changes when a field changes its meaning
//! or is removed. With `?format=text` or `Accept: text/plain` each trace is a line of text:
//!
//! ```text
//! 12:00:03Z podset demo/web ran for 3.1ms because Pod demo/web-abc was deleted; read 3 Pods; created Pod demo/web-xyz; runs again when a watched object changes
//! ```
//!
//! **Security.** Traces contain the names of objects, kinds and changed fields, label selectors, reasons of events, and
//! error messages of the API server and the reconciler. They contain no field values, except where an error message
//! quotes one (`Invalid value: …`); errors about Secrets are not kept. Therefore they are shown only to requests on a
//! loopback connection with a loopback `Host`, such as those through `kubectl port-forward`, and on a metrics server
//! that [authenticates](crate::metrics_server::MetricsServer::guarded), to users who may `get` the path.

mod recorder;
mod ring;
mod tracer;
mod triggers;

use std::{
    borrow::Cow,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

pub use kubewright_apimachinery::trace::{
    ControllerPage, End, KeyPage, Next, Overview, Phase, Present, Query, Read, Reason, RecordedEvent, Summary, Trace,
    Trigger, VERSION, Write,
};
use parking_lot::Mutex;

pub use self::ring::Limits;
pub(crate) use self::{
    recorder::{RunNotes, RunRecorder, Sent},
    tracer::{Begun, ControllerInfo, Tracer},
    triggers::{Difference, ObservedChange, Triggers},
};
use crate::object::ObjectKey;

/// The traces of a manager's controllers. Clones share the same traces: pass one to [`Manager::traces`] to read them in
/// the same process.
///
/// ```
/// # use kubewright_runtime::{manager::Manager, object::ObjectKey, trace::Traces};
/// # fn example(manager: Manager) {
/// let traces = Traces::default();
/// let manager = manager.traces(traces.clone());
/// // … later, while it runs:
/// for trace in traces.of("podset", &ObjectKey::namespaced("demo", "web")) {
///     println!("{trace}");
/// }
/// # }
/// ```
///
/// [`Manager::traces`]: crate::manager::Manager::traces
#[derive(Clone)]
pub struct Traces(Option<Arc<Inner>>);

struct Inner {
    limits: Limits,
    has_versions: bool,
    controllers: Mutex<tracer::Tracers>,
    /// The number of runs that have ended, which all tracers count.
    ended: Arc<AtomicU64>,
}

impl Default for Traces {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").field("limits", &self.0.as_ref().map(|inner| inner.limits)).finish_non_exhaustive()
    }
}

impl Traces {
    /// Creates traces with these limits.
    pub fn new(limits: Limits) -> Self {
        Self(Some(Arc::new(Inner {
            limits,
            has_versions: false,
            controllers: Mutex::default(),
            ended: Arc::default(),
        })))
    }

    /// Creates traces whose [writes](Write) have versions: that which the run had read, and that of the response. It
    /// costs time for each object that a reconcile reads, so it is meant for tests.
    pub fn with_versions(limits: Limits) -> Self {
        Self(Some(Arc::new(Inner { limits, has_versions: true, controllers: Mutex::default(), ended: Arc::default() })))
    }

    /// Disables tracing: no traces are kept or served.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Returns whether traces are kept.
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the controllers, by name. The list is empty before the manager runs.
    pub fn controllers(&self) -> Vec<Summary> {
        self.tracers().iter().map(|tracer| tracer.summary()).collect()
    }

    /// Returns the number of runs of all controllers that have ended, those of removed controllers included. It is 0 if
    /// traces are off.
    ///
    /// It takes no lock, so that a reader can look often, and read the traces only if the number has changed: the trace
    /// of a run is kept before the run is counted.
    pub fn ended_runs(&self) -> u64 {
        self.0.as_ref().map_or(0, |inner| inner.ended.load(Ordering::Acquire))
    }

    /// Returns the last traces of a controller, at most `most`, oldest first.
    pub fn last(&self, controller: &str, most: usize) -> Vec<Arc<Trace>> {
        self.tracer(controller).map(|tracer| tracer.last(most)).unwrap_or_default()
    }

    /// Returns the last traces of a key, oldest first.
    pub fn of(&self, controller: &str, key: &ObjectKey) -> Vec<Arc<Trace>> {
        self.tracer(controller).map(|tracer| tracer.of(key)).unwrap_or_default()
    }

    /// Returns the last traces and the present state of a key; `None` if there is no such controller.
    pub fn explain(&self, controller: &str, key: &ObjectKey) -> Option<KeyPage> {
        Some(self.tracer(controller)?.key(key))
    }

    pub(crate) fn page(&self, controller: &str, most: usize) -> Option<ControllerPage> {
        Some(self.tracer(controller)?.page(most))
    }

    /// Creates the tracer of a controller; `None` if traces are off.
    pub(crate) fn controller(
        &self,
        name: &str,
        group_kind: [Cow<'static, str>; 2],
        workers: usize,
        info: impl ControllerInfo + 'static,
    ) -> Option<Arc<Tracer>> {
        let inner = self.0.as_ref()?;
        let tracer = Tracer::new(name, group_kind, workers, inner.limits, inner.ended.clone(), Box::new(info));
        let tracer = Arc::new(tracer.with_versions(inner.has_versions));
        inner.controllers.lock().insert(name.into(), tracer.clone());
        Some(tracer)
    }

    /// Drops the traces of a controller.
    pub(crate) fn forget(&self, controller: &str) {
        if let Some(inner) = &self.0 {
            inner.controllers.lock().remove(controller);
        }
    }

    fn tracers(&self) -> Vec<Arc<Tracer>> {
        self.0.as_ref().map(|inner| inner.controllers.lock().values().cloned().collect()).unwrap_or_default()
    }

    fn tracer(&self, controller: &str) -> Option<Arc<Tracer>> {
        self.0.as_ref()?.controllers.lock().get(controller).cloned()
    }
}
