//! Exemplars: of each bucket of the durations of reconciles, the latest reconcile.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use jiff::Timestamp;
use parking_lot::Mutex;

/// One observation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Exemplar {
    /// What names the observation.
    pub(crate) labels: ExemplarLabels,
    pub(crate) value: f64,
    pub(crate) time: Timestamp,
}

/// The labels of an exemplar, which may have 128 characters altogether.
pub(crate) type ExemplarLabels = Vec<(&'static str, String)>;

/// The exemplars of all controllers. None are kept before the first request for OpenMetrics, so that a program without
/// such requests has no cost. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Exemplars(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    are_wanted: Arc<AtomicBool>,
    controllers: Mutex<BTreeMap<String, ControllerExemplars>>,
}

impl Exemplars {
    /// Returns the exemplars of a controller by the upper bounds of the buckets.
    pub(super) fn controller(&self, name: &str, bounds: &'static [f64]) -> ControllerExemplars {
        let make = || ControllerExemplars { are_wanted: self.0.are_wanted.clone(), bounds, latest: Arc::default() };
        self.0.controllers.lock().entry(name.into()).or_insert_with(make).clone()
    }

    /// Returns the exemplars of a controller in the order of its buckets, and keeps exemplars from now on.
    pub(super) fn of(&self, name: &str) -> Vec<Option<Exemplar>> {
        self.0.are_wanted.store(true, Ordering::Relaxed);
        let controllers = self.0.controllers.lock();
        controllers.get(name).map(|exemplars| exemplars.latest.lock().clone()).unwrap_or_default()
    }

    pub(super) fn forget(&self, name: &str) {
        self.0.controllers.lock().remove(name);
    }
}

/// The exemplars of one controller.
#[derive(Clone, Debug)]
pub(super) struct ControllerExemplars {
    are_wanted: Arc<AtomicBool>,
    bounds: &'static [f64],
    latest: Arc<Mutex<Vec<Option<Exemplar>>>>,
}

impl ControllerExemplars {
    /// Returns the labels of a reconcile that begins, if exemplars are wanted.
    pub(super) fn labels(&self, labels: impl FnOnce() -> ExemplarLabels) -> Option<ExemplarLabels> {
        self.are_wanted.load(Ordering::Relaxed).then(labels)
    }

    pub(super) fn observe(&self, exemplar: Exemplar) {
        let bucket = self.bounds.partition_point(|bound| *bound < exemplar.value);
        let mut latest = self.latest.lock();
        latest.resize(self.bounds.len() + 1, None);
        if let Some(place) = latest.get_mut(bucket) {
            *place = Some(exemplar);
        }
    }
}
