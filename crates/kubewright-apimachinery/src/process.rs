//! The metrics of this process: the `process_*` families common to Prometheus' client libraries, read from
//! `/proc/self`.
//!
//! <https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>

use std::fs;

/// Clock ticks per second in `/proc`: the kernel's `USER_HZ`, which is 100 on every architecture with a Rust standard
/// library.
const TICKS: f64 = 100.0;

/// A metric of this process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMetric {
    /// The name, such as `process_open_fds`.
    pub name: &'static str,
    /// The description.
    pub help: &'static str,
    /// True for a counter, false for a gauge.
    pub is_counter: bool,
    read: fn() -> Option<f64>,
}

impl ProcessMetric {
    /// Returns the current value, or `None` if it can't be read, as on systems without `/proc`.
    pub fn value(&self) -> Option<f64> {
        (self.read)()
    }
}

/// The metrics of this process.
pub const PROCESS_METRICS: [ProcessMetric; 7] = [
    ProcessMetric {
        name: "process_cpu_seconds_total",
        help: "Total user and system CPU time spent in seconds.",
        is_counter: true,
        read: cpu_seconds,
    },
    ProcessMetric {
        name: "process_max_fds",
        help: "Maximum number of open file descriptors.",
        is_counter: false,
        read: max_fds,
    },
    ProcessMetric {
        name: "process_open_fds",
        help: "Number of open file descriptors.",
        is_counter: false,
        read: open_fds,
    },
    ProcessMetric {
        name: "process_resident_memory_bytes",
        help: "Resident memory size in bytes.",
        is_counter: false,
        read: || status("VmRSS:").map(|kib| kib * 1024.0),
    },
    ProcessMetric {
        name: "process_start_time_seconds",
        help: "Start time of the process since unix epoch in seconds.",
        is_counter: false,
        read: start_time,
    },
    ProcessMetric {
        name: "process_threads",
        help: "Number of OS threads in the process.",
        is_counter: false,
        read: || status("Threads:"),
    },
    ProcessMetric {
        name: "process_virtual_memory_bytes",
        help: "Virtual memory size in bytes.",
        is_counter: false,
        read: || status("VmSize:").map(|kib| kib * 1024.0),
    },
];

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
        let value = |name: &str| {
            let metric = PROCESS_METRICS.iter().find(|metric| metric.name == name).unwrap();
            metric.value().unwrap()
        };
        assert!(value("process_threads") >= 1.0 && value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_open_fds") >= 3.0 && value("process_open_fds") < value("process_max_fds"));
        let (resident, whole) = (value("process_resident_memory_bytes"), value("process_virtual_memory_bytes"));
        assert!(resident > 1e6 && resident <= whole, "{resident} of {whole}");
        // A plausible start time: after 2017 and before 2097.
        assert!((1.5e9..4.0e9).contains(&value("process_start_time_seconds")));
    }
}
