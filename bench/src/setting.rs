//! The machine, and the limits of a process on it.

use std::{fs, process::Command};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Returns a description of the machine in one line.
pub(crate) fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown CPU", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes: u64 = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok())
        .unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let rustc = Command::new("rustc").arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    format!(
        "{model}, {cores} cores, {} GiB, Linux {}, {}",
        kilobytes >> 20,
        kernel.trim(),
        String::from_utf8_lossy(&rustc).trim()
    )
}

/// Raises the limit of open files. A thousand watchers need two thousand sockets, since both ends are in this process.
pub(crate) fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Without the permission to raise the limit, the fan-out benchmark fails to connect and reports that.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
