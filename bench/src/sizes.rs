//! The sizes of the benchmarks: how many objects, how many rounds, and how long they wait.

use std::time::Duration;

/// The sizes of a run. The methods in the results describe the sizes of a complete run.
#[derive(Clone)]
pub(crate) struct Sizes {
    /// True for a smoke run, whose figures mean nothing. Work that only makes figures comparable is left out.
    pub(crate) smoke: bool,
    /// The number of starts, in this process's children and of the command.
    pub(crate) starts: usize,
    /// The number of scaffolded projects, and of generations of the manifests.
    pub(crate) scaffolds: usize,
    /// The number of edits while `kubewright dev` runs.
    pub(crate) edits: usize,
    /// The number of pods that are created one by one.
    pub(crate) creates: usize,
    /// The number of writes with and without an admission webhook.
    pub(crate) admission_writes: usize,
    /// The number of objects of each kind that are created in the embedded and in a real API server.
    pub(crate) compared: usize,
    /// The numbers of pods with which the memory of the command is measured.
    pub(crate) stored: [usize; 2],
    pub(crate) watchers: usize,
    /// The number of writes that each watcher receives.
    pub(crate) watched_writes: usize,
    /// The number of PodSets that go from zero to five pods.
    pub(crate) podset_rounds: usize,
    pub(crate) cached_pods: usize,
    /// The number of points in time, in each time zone, at which the latest missed run is computed.
    pub(crate) schedule_times: i64,
    /// The number of CronJobs that are due at once.
    pub(crate) cronjobs: usize,
    /// The time between the start of their creation and the minute at which they are due.
    pub(crate) cronjob_head_start: Duration,
    pub(crate) queue_rounds: usize,
    /// The numbers of scheduled keys, each ten times the previous.
    pub(crate) scheduled_keys: [usize; 4],
    /// The number of steps that are timed with each number of scheduled keys.
    pub(crate) scheduled_steps: usize,
    /// The numbers of cached objects with which the overhead of a reconcile is measured.
    pub(crate) overhead_objects: [usize; 2],
    /// The number of processes in which the overhead is measured with each number of objects.
    pub(crate) overhead_processes: usize,
    pub(crate) overhead_warm_up: usize,
    /// The number of events that are sent one directly after the other.
    pub(crate) overhead_busy: usize,
    /// The number of events that are sent after a pause.
    pub(crate) overhead_rested: usize,
    /// The time for which the operators are idle before their memory is measured.
    pub(crate) idle: Duration,
    /// The number of runs of the simulator.
    pub(crate) simulations: usize,
    /// The hours of virtual time for which an operator is idle in the simulator.
    pub(crate) idle_hours: u64,
    /// The number of PodSets that have to converge, and of their namespaces.
    pub(crate) podsets: usize,
    pub(crate) podset_namespaces: usize,
    /// The number of PodSets on a real API server, and of their namespaces.
    pub(crate) real_podsets: usize,
    pub(crate) real_podset_namespaces: usize,
    /// The number of rounds in which operators are compared with those on other frameworks, in turns.
    pub(crate) rounds: usize,
    /// The time for which idle managers are compared.
    pub(crate) idle_compared: Duration,
    /// The time for which reviews are sent to a webhook server.
    pub(crate) reviewed: Duration,
    /// The number of keys, of their namespaces, of events a second, and the time for which the events last.
    pub(crate) keys: usize,
    pub(crate) key_namespaces: usize,
    pub(crate) key_events: usize,
    pub(crate) keys_busy: Duration,
}

/// The sizes of a complete run, whose results are kept.
static WHOLE: Sizes = Sizes {
    smoke: false,
    starts: 20,
    scaffolds: 20,
    edits: 10,
    creates: 30_000,
    admission_writes: 1_000,
    compared: 10_000,
    stored: [30_000, 100_000],
    watchers: 1_000,
    watched_writes: 50,
    podset_rounds: 10,
    cached_pods: 100_000,
    schedule_times: 1_000,
    cronjobs: 1_000,
    cronjob_head_start: Duration::from_secs(25),
    queue_rounds: 1_000,
    scheduled_keys: [1_000, 10_000, 100_000, 1_000_000],
    scheduled_steps: 200_000,
    overhead_objects: [100, 100_000],
    overhead_processes: 3,
    overhead_warm_up: 2_000,
    overhead_busy: 20_000,
    overhead_rested: 2_000,
    idle: Duration::from_secs(60),
    simulations: 10_000,
    idle_hours: 500,
    podsets: 10_000,
    podset_namespaces: 100,
    real_podsets: 500,
    real_podset_namespaces: 10,
    rounds: 3,
    idle_compared: Duration::from_secs(600),
    reviewed: Duration::from_secs(10),
    keys: 1_000_000,
    key_namespaces: 1_000,
    key_events: 50_000,
    keys_busy: Duration::from_secs(60),
};

/// The sizes of a smoke run: a few seconds for each benchmark in a debug build.
static SMOKE: Sizes = Sizes {
    smoke: true,
    starts: 1,
    scaffolds: 1,
    edits: 1,
    creates: 100,
    admission_writes: 10,
    compared: 100,
    stored: [50, 100],
    watchers: 20,
    watched_writes: 5,
    podset_rounds: 1,
    cached_pods: 2_000,
    schedule_times: 10,
    cronjobs: 10,
    cronjob_head_start: Duration::from_secs(8),
    queue_rounds: 10,
    scheduled_keys: [10, 100, 1_000, 10_000],
    scheduled_steps: 1_000,
    overhead_objects: [10, 100],
    overhead_processes: 1,
    overhead_warm_up: 20,
    overhead_busy: 100,
    overhead_rested: 20,
    idle: Duration::from_secs(5),
    simulations: 3,
    idle_hours: 10,
    podsets: 20,
    podset_namespaces: 4,
    real_podsets: 20,
    real_podset_namespaces: 4,
    rounds: 1,
    idle_compared: Duration::from_secs(5),
    reviewed: Duration::from_secs(1),
    keys: 2_000,
    key_namespaces: 10,
    key_events: 500,
    keys_busy: Duration::from_secs(2),
};

impl Sizes {
    pub(crate) fn new(smoke: bool) -> &'static Self {
        if smoke { &SMOKE } else { &WHOLE }
    }

    /// Returns the flags that give another process of this program the same sizes.
    pub(crate) fn flags(&self) -> &'static [&'static str] {
        if self.smoke { &["--smoke"] } else { &[] }
    }
}
