//! The CPU and memory of process groups and of the host, from `/proc`. Unprivileged.

use std::{collections::BTreeMap, fs};

use super::account::{CpuAccount, Process};

/// The length of the ticks in which `/proc` counts CPU time: 100 a second on all architectures that Rust supports on
/// Linux.
const TICK_NANOS: u64 = 10_000_000;
/// The maximum number of generations between a process and the leader of its container.
const GENERATIONS: usize = 256;

/// The CPU time since the start, in nanoseconds, and the memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) cpu_nanos: u64,
    pub(super) memory: u64,
}

/// The process groups of containers. The ID of the container's own process stands for the container.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<u32, CpuAccount>);

impl Groups {
    /// Returns the totals of containers, by the leaders of all their process groups, for each of which the container is
    /// given. Processes that have left a group but descend from it belong to it, too. A page of memory that processes
    /// share counts for each.
    pub(super) fn measure(&mut self, leaders: &BTreeMap<u32, u32>) -> BTreeMap<u32, Totals> {
        let mut present: BTreeMap<u32, BTreeMap<u32, Process>> = BTreeMap::new();
        let processes = if leaders.is_empty() { BTreeMap::new() } else { processes() };
        for (id, process) in &processes {
            if let Some(container) = container_of(*id, &processes, leaders) {
                present.entry(container).or_default().insert(*id, *process);
            }
        }
        self.0.retain(|container, _| present.contains_key(container));
        let totals = |(container, processes): (u32, BTreeMap<u32, Process>)| {
            let memory = processes.keys().map(|id| resident(*id)).fold(0, u64::saturating_add);
            let ticks = self.0.entry(container).or_default().update(processes);
            (container, Totals { cpu_nanos: ticks.saturating_mul(TICK_NANOS), memory })
        };
        present.into_iter().map(totals).collect()
    }
}

/// Returns the memory of a process, in bytes.
fn resident(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    kib(&status, "VmRSS:").unwrap_or_default() << 10
}

/// Returns the totals of the host. What the system can free at once doesn't count as used memory.
pub(super) fn host() -> Option<Totals> {
    let cpu_nanos = busy_ticks(&fs::read_to_string("/proc/stat").ok()?)?.saturating_mul(TICK_NANOS);
    let memory = fs::read_to_string("/proc/meminfo").ok()?;
    let used = kib(&memory, "MemTotal:")?.saturating_sub(kib(&memory, "MemAvailable:")?);
    Some(Totals { cpu_nanos, memory: used << 10 })
}

fn processes() -> BTreeMap<u32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // A process may end at any time.
    ids.filter_map(|id| Some((id, parse_stat(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?))).collect()
}

/// Parses `/proc/PID/stat`. The name of the program in it may contain spaces and parentheses.
fn parse_stat(text: &str) -> Option<Process> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // A process that has ended but wasn't waited for still has its time. The times of children may be negative in
    // theory.
    let ticks = |at: [usize; 2]| at.into_iter().filter_map(number).fold(0, u64::saturating_add);
    Some(Process {
        parent: number(1)?.try_into().ok()?,
        group: number(2)?.try_into().ok()?,
        started: number(19)?,
        own: ticks([11, 12]),
        children: ticks([13, 14]),
    })
}

/// Returns the container to whose groups a process or one of its ancestors belongs.
fn container_of(id: u32, processes: &BTreeMap<u32, Process>, leaders: &BTreeMap<u32, u32>) -> Option<u32> {
    let mut next = id;
    for _ in 0..GENERATIONS {
        if let Some(container) = leaders.get(&next) {
            return Some(*container);
        }
        let process = processes.get(&next)?;
        if let Some(container) = leaders.get(&process.group) {
            return Some(*container);
        }
        next = process.parent;
    }
    None
}

/// Returns the time in which the processors weren't idle, from `/proc/stat`.
fn busy_ticks(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_ascii_whitespace().filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal. The time of guests is a part of that of users.
    Some([0, 1, 2, 5, 6].iter().filter_map(|index| ticks.get(*index)).fold(0, |sum, ticks| sum.saturating_add(*ticks)))
}

/// Returns a value in KiB by its name.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_programs_may_contain_anything() {
        let stat = "42 (a) (b c) S 7 40 40 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 5 6 7";
        assert_eq!(parse_stat(stat), Some(Process { parent: 7, group: 40, started: 5, own: 30, children: 70 }));
        assert_eq!(parse_stat("42 S 7"), None);
    }

    #[test]
    fn descendants_that_left_the_group_belong_to_it() {
        let process = |parent, group| Process { parent, group, ..Process::default() };
        // 10 leads a container, 11 is in its group, 12 has left it, and 13 is a child of 12. 15 leads a command in it,
        // and 16 is in its group. 20 is another one's.
        let all = [(1, process(0, 1)), (10, process(1, 10)), (11, process(10, 10)), (12, process(11, 12))];
        let others = [(13, process(12, 12)), (20, process(1, 20)), (30, process(31, 30)), (31, process(30, 31))];
        let command = [(15, process(1, 15)), (16, process(15, 15))];
        let all = all.into_iter().chain(others).chain(command).collect();
        let container = |id| container_of(id, &all, &[(10, 10), (15, 10)].into());
        assert_eq!([10, 11, 12, 13, 15, 16].map(container), [Some(10); 6]);
        assert_eq!([1, 20, 30, 99].map(container), [None; 4]);
    }

    #[test]
    fn totals_of_the_host() {
        assert_eq!(busy_ticks("cpu  1 2 4 8 16 32 64 128 0 0\ncpu0 9 9 9 9\n"), Some(1 + 2 + 4 + 32 + 64));
        assert_eq!(kib("MemTotal:       24 kB\nMemAvailable:    8 kB\n", "MemAvailable:"), Some(8));
        assert_eq!(kib("MemTotal: many\n", "MemTotal:"), None);
    }
}
