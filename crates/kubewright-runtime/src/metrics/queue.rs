//! `workqueue_*`: the depth of a queue, and the durations of waiting and processing.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use kubewright_apimachinery::clock::SharedClock;
use parking_lot::Mutex;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    exponential_buckets,
};

use super::{add, counters, gauges, histograms};

const LABELS: [&str; 2] = ["name", "controller"];

pub(super) struct Families {
    depth: IntGaugeVec,
    adds: IntCounterVec,
    waited: HistogramVec,
    worked: HistogramVec,
    unfinished: GaugeVec,
    longest: GaugeVec,
    retries: IntCounterVec,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        // From 10 ns to 1,000 s in powers of ten, as in controller-runtime.
        let buckets = exponential_buckets(10e-9, 10.0, 12).expect("constant buckets are valid");
        let seconds = |name: &str, help: &str| {
            let family = GaugeVec::new(Opts::new(name, help), &LABELS).expect("constant names are valid");
            add(registry, family.clone());
            family
        };
        Self {
            depth: gauges(
                registry,
                "workqueue_depth",
                "Keys that wait in the queue, by priority.",
                &["name", "controller", "priority"],
            ),
            adds: counters(registry, "workqueue_adds_total", "Keys that were added to the queue.", &LABELS),
            waited: histograms(
                registry,
                "workqueue_queue_duration_seconds",
                "How long a key waits in the queue before it is taken.",
                &LABELS,
                &buckets,
            ),
            worked: histograms(
                registry,
                "workqueue_work_duration_seconds",
                "How long a key that was taken from the queue is worked on.",
                &LABELS,
                &buckets,
            ),
            unfinished: seconds(
                "workqueue_unfinished_work_seconds",
                "Seconds that the keys now in work have taken so far, together. Growth without end means stuck workers.",
            ),
            longest: seconds(
                "workqueue_longest_running_processor_seconds",
                "Seconds that the key longest in work has taken so far.",
            ),
            retries: counters(registry, "workqueue_retries_total", "Keys that were added again for a retry.", &LABELS),
        }
    }

    pub(super) fn queue(&self, name: &str, clock: SharedClock) -> QueueMetrics {
        let labels = [name, name];
        let metrics = QueueMetrics(Arc::new(Inner {
            clock,
            name: name.into(),
            depth: self.depth.clone(),
            gauges: Mutex::default(),
            read_state: Mutex::new(Box::new(QueueState::default)),
            adds: self.adds.with_label_values(&labels),
            waited: self.waited.with_label_values(&labels),
            worked: self.worked.with_label_values(&labels),
            unfinished: self.unfinished.with_label_values(&labels),
            longest: self.longest.with_label_values(&labels),
            retries: self.retries.with_label_values(&labels),
            in_progress: Mutex::default(),
        }));
        // The depth of the normal priority is exported from the start.
        metrics.set_depths(&[(0, 0)]);
        metrics
    }
}

impl Families {
    /// Drops the series of a queue, unless there are none.
    pub(super) fn forget(&self, queue: &QueueMetrics) {
        let Inner { name, gauges, .. } = queue.0.as_ref();
        let labels = [name.as_str(), name];
        for priority in gauges.lock().keys() {
            let _ = self.depth.remove_label_values(&[name.as_str(), name, &priority.to_string()]);
        }
        for family in [&self.adds, &self.retries] {
            let _ = family.remove_label_values(&labels);
        }
        for family in [&self.waited, &self.worked] {
            let _ = family.remove_label_values(&labels);
        }
        for family in [&self.unfinished, &self.longest] {
            let _ = family.remove_label_values(&labels);
        }
    }
}

/// The metrics of one queue. Clones share them.
#[derive(Clone, Debug)]
pub struct QueueMetrics(Arc<Inner>);

struct Inner {
    clock: SharedClock,
    name: String,
    depth: IntGaugeVec,
    /// The gauges of the priorities seen so far.
    gauges: Mutex<BTreeMap<i32, IntGauge>>,
    read_state: Mutex<ReadState>,
    adds: IntCounter,
    waited: Histogram,
    worked: Histogram,
    unfinished: Gauge,
    longest: Gauge,
    retries: IntCounter,
    in_progress: Mutex<InProgress>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueMetrics").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A function that reads the state of a queue.
type ReadState = Box<dyn FnMut() -> QueueState + Send>;

/// The state of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// The number of waiting keys, by priority.
    pub depths: Vec<(i32, usize)>,
    /// The number of keys added since the last read by events, retries and timers, without keys that were waiting
    /// already.
    pub added: u64,
}

/// The start time of each key in progress, by a sequence number.
#[derive(Debug, Default)]
struct InProgress {
    next: u64,
    started: BTreeMap<u64, Duration>,
}

impl QueueMetrics {
    /// Sets the function that reads the state of the queue. It is called when the metrics are read, so that the queue
    /// has no cost of counting.
    pub fn follow(&self, read: impl FnMut() -> QueueState + Send + 'static) {
        *self.0.read_state.lock() = Box::new(read);
    }

    /// Sets the depths by priority. Priorities that are missing have a depth of zero.
    fn set_depths(&self, depths: &[(i32, usize)]) {
        let mut gauges = self.0.gauges.lock();
        gauges.values().for_each(|gauge| gauge.set(0));
        for (priority, depth) in depths {
            let gauge = gauges.entry(*priority).or_insert_with(|| {
                self.0.depth.with_label_values(&[self.0.name.as_str(), &self.0.name, &priority.to_string()])
            });
            gauge.set(i64::try_from(*depth).unwrap_or(i64::MAX));
        }
    }

    /// Counts a key that was added again after an error or on request.
    pub fn retried(&self) {
        self.0.retries.inc();
    }

    /// Records that a key was taken after it had been ready for `waited`. Processing is measured until the timer is
    /// dropped.
    #[must_use = "the work ends when the timer is dropped"]
    pub fn taken(&self, waited: Duration) -> WorkTimer {
        self.0.waited.observe(waited.as_secs_f64());
        let mut in_progress = self.0.in_progress.lock();
        let number = in_progress.next;
        in_progress.next += 1;
        in_progress.started.insert(number, self.0.clock.monotonic());
        WorkTimer { metrics: self.clone(), number }
    }

    /// Updates the gauges; called before the metrics are read.
    pub(super) fn refresh(&self) {
        let QueueState { depths, added } = (self.0.read_state.lock())();
        self.0.adds.inc_by(added);
        self.set_depths(&depths);
        let now = self.0.clock.monotonic();
        let in_progress = self.0.in_progress.lock();
        let running = || in_progress.started.values().map(|start| now.saturating_sub(*start));
        self.0.unfinished.set(running().sum::<Duration>().as_secs_f64());
        self.0.longest.set(running().max().unwrap_or_default().as_secs_f64());
    }
}

/// The processing of a key, in progress.
#[derive(Debug)]
pub struct WorkTimer {
    metrics: QueueMetrics,
    number: u64,
}

impl Drop for WorkTimer {
    fn drop(&mut self) {
        let Inner { clock, worked, in_progress, .. } = &*self.metrics.0;
        if let Some(start) = in_progress.lock().started.remove(&self.number) {
            worked.observe(clock.monotonic().saturating_sub(start).as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::clock::VirtualClock;

    use crate::metrics::Metrics;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn follows_a_key_through_the_queue() {
        let metrics = Metrics::new(VirtualClock::starting_at(jiff::Timestamp::UNIX_EPOCH));
        let queue = metrics.queue("at");
        let value = |name: &str| {
            let text = metrics.encode().unwrap();
            let line = text.lines().find(|line| line.starts_with(&format!("workqueue_{name}{{"))).unwrap().to_owned();
            line.rsplit_once(' ').unwrap().1.to_owned()
        };
        let mut added = 1;
        queue.follow(move || QueueState { depths: vec![(0, 1)], added: std::mem::take(&mut added) });
        let first = queue.taken(Duration::from_secs(2));
        tokio::time::advance(Duration::from_secs(3)).await;
        let second = queue.taken(Duration::ZERO);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(value("unfinished_work_seconds"), "5");
        assert_eq!(value("longest_running_processor_seconds"), "4");
        drop(first);
        drop(second);
        assert_eq!(value("unfinished_work_seconds"), "0");
        assert_eq!(value("work_duration_seconds_sum"), "5");
        assert_eq!(value("queue_duration_seconds_sum"), "2");
        assert_eq!((value("adds_total"), value("depth")), ("1".into(), "1".into()));
    }

    #[test]
    fn the_same_name_gives_the_same_queue() {
        let metrics = Metrics::new(kubewright_apimachinery::clock::SystemClock::shared());
        for _ in 0..2 {
            metrics.queue("at").follow(|| QueueState { added: 1, ..QueueState::default() });
            metrics.encode().unwrap();
        }
        metrics.queue("at").follow(QueueState::default);
        assert!(metrics.encode().unwrap().contains("workqueue_adds_total{controller=\"at\",name=\"at\"} 2"));
    }
}
