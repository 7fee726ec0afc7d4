//! `process_*`: the families common to Prometheus' client libraries, read from `/proc/self`.
//!
//! <https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>

use std::fs;

use prometheus::{
    core::{Collector, Desc},
    proto::{Counter, Gauge, Metric, MetricFamily, MetricType},
};

/// Clock ticks per second in `/proc`: the kernel's `USER_HZ`, which is 100 on every architecture with a Rust standard
/// library.
const TICKS: f64 = 100.0;

/// A family of one metric.
struct Family {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    /// Returns the value; `None` if it can't be read.
    read: fn() -> Option<f64>,
}

const FAMILIES: [Family; 7] = [
    Family {
        name: "process_cpu_seconds_total",
        help: "Total user and system CPU time spent in seconds.",
        kind: MetricType::COUNTER,
        read: cpu_seconds,
    },
    Family {
        name: "process_max_fds",
        help: "Maximum number of open file descriptors.",
        kind: MetricType::GAUGE,
        read: max_fds,
    },
    Family {
        name: "process_open_fds",
        help: "Number of open file descriptors.",
        kind: MetricType::GAUGE,
        read: open_fds,
    },
    Family {
        name: "process_resident_memory_bytes",
        help: "Resident memory size in bytes.",
        kind: MetricType::GAUGE,
        read: || status("VmRSS:").map(|kib| kib * 1024.0),
    },
    Family {
        name: "process_start_time_seconds",
        help: "Start time of the process since unix epoch in seconds.",
        kind: MetricType::GAUGE,
        read: start_time,
    },
    Family {
        name: "process_threads",
        help: "Number of OS threads in the process.",
        kind: MetricType::GAUGE,
        read: || status("Threads:"),
    },
    Family {
        name: "process_virtual_memory_bytes",
        help: "Virtual memory size in bytes.",
        kind: MetricType::GAUGE,
        read: || status("VmSize:").map(|kib| kib * 1024.0),
    },
];

/// A collector of the metrics of this process. It is empty on systems without `/proc`.
pub(super) struct ProcessCollector(Vec<Desc>);

impl ProcessCollector {
    pub(super) fn new() -> prometheus::Result<Self> {
        let desc = |family: &Family| Desc::new(family.name.into(), family.help.into(), Vec::new(), Default::default());
        Ok(Self(FAMILIES.iter().map(desc).collect::<prometheus::Result<_>>()?))
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.0.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        FAMILIES.iter().filter_map(|family| Some(family.with((family.read)()?))).collect()
    }
}

impl Family {
    fn with(&self, value: f64) -> MetricFamily {
        let mut metric = Metric::default();
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        let mut family = MetricFamily::default();
        family.set_name(self.name.into());
        family.set_help(self.help.into());
        family.set_field_type(self.kind);
        family.set_metric(vec![metric]);
        family
    }
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    Some((field(&stat, 14)? + field(&stat, 15)?) / TICKS)
}

fn start_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let machine = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = machine.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + field(&stat, 22)? / TICKS)
}

fn open_fds() -> Option<f64> {
    // The directory itself is open while it is read, so it is not counted.
    let count = fs::read_dir("/proc/self/fd").ok()?.count().checked_sub(1)?;
    u32::try_from(count).ok().map(f64::from)
}

fn max_fds() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?.parse().ok()
}

/// Returns the number on a line of `/proc/self/status`.
fn status(name: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Returns a field of `/proc/self/stat`, numbered from 1 as in proc(5). The second field is the program's name in
/// parentheses, which may contain any character.
fn field(stat: &str, number: usize) -> Option<f64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_programs_name() {
        let stat = "42 (a ) b 1) S 1 2 3 4 5 6 7 8 9 10 120 30 0 0 20 0 7 0 5000 1 2";
        assert_eq!((field(stat, 4), field(stat, 14), field(stat, 15)), (Some(1.0), Some(120.0), Some(30.0)));
        assert_eq!((field(stat, 22), field(stat, 99), field("", 14)), (Some(5000.0), None, None));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_values_are_those_of_this_process() {
        let families = ProcessCollector::new().unwrap().collect();
        let value = |name: &str| {
            let family = families.iter().find(|family| family.name() == name).unwrap();
            let metric = &family.get_metric()[0];
            metric.get_gauge().get_value() + metric.get_counter().get_value()
        };
        assert_eq!(families.len(), FAMILIES.len());
        assert!(value("process_threads") >= 1.0 && value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_open_fds") >= 3.0 && value("process_open_fds") < value("process_max_fds"));
        let (resident, whole) = (value("process_resident_memory_bytes"), value("process_virtual_memory_bytes"));
        assert!(resident > 1e6 && resident <= whole, "{resident} of {whole}");
        // A plausible start time: after 2017 and before 2097.
        assert!((1.5e9..4.0e9).contains(&value("process_start_time_seconds")));
    }
}
