//! The CPU time of a container, which includes that of processes that have ended. Pure.

use std::collections::BTreeMap;

/// The CPU time that `/proc` shows for a process, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) parent: u32,
    /// Its process group.
    pub(super) group: u32,
    /// The time after the system's start at which it started. Together with the ID, it names the process.
    pub(super) started: u64,
    /// The time of its own.
    pub(super) own: u64,
    /// The time of its children that have ended and that it has waited for, with their own such children.
    pub(super) children: u64,
}

/// The CPU time of the processes of a container, present and past. It never decreases.
#[derive(Debug, Default)]
pub(super) struct CpuAccount {
    ticks: u64,
    /// The processes that were there last, by ID.
    processes: BTreeMap<u32, Process>,
}

impl CpuAccount {
    /// Adds what the present processes, and those that have ended, have used since the last call. Returns the total in
    /// ticks.
    ///
    /// A process that has ended counts as it was seen last, or as its parent counts it if that has waited for it.
    pub(super) fn update(&mut self, present: BTreeMap<u32, Process>) -> u64 {
        let mut counted: BTreeMap<u32, u64> = BTreeMap::new();
        for (id, process) in &self.processes {
            if !is_among(&present, *id, process)
                && let Some(ancestor) = self.ancestor(process, &present)
            {
                let ticks = counted.entry(ancestor).or_default();
                *ticks = ticks.saturating_add(process.own.saturating_add(process.children));
            }
        }
        for (id, process) in &present {
            let before = self.processes.get(id).filter(|before| before.started == process.started).copied();
            let before = before.unwrap_or_default();
            let waited_for = process.children.saturating_sub(before.children);
            let ended = waited_for.saturating_sub(counted.get(id).copied().unwrap_or_default());
            self.ticks = self.ticks.saturating_add(process.own.saturating_sub(before.own)).saturating_add(ended);
        }
        self.processes = present;
        self.ticks
    }

    /// Returns the closest ancestor of a process that is still there.
    fn ancestor(&self, process: &Process, present: &BTreeMap<u32, Process>) -> Option<u32> {
        let mut next = process.parent;
        // Each of them is asked once at most, even if IDs were used again.
        for _ in 0..=self.processes.len() {
            let parent = self.processes.get(&next)?;
            if is_among(present, next, parent) {
                return Some(next);
            }
            next = parent.parent;
        }
        None
    }
}

/// Returns whether a process is among these.
fn is_among(processes: &BTreeMap<u32, Process>, id: u32, process: &Process) -> bool {
    processes.get(&id).is_some_and(|one| one.started == process.started)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(parent: u32, own: u64, children: u64) -> Process {
        Process { parent, group: 10, started: 1, own, children }
    }

    #[test]
    fn a_child_counts_once_whether_its_parent_waits_for_it_or_not() {
        let mut account = CpuAccount::default();
        assert_eq!(account.update([(10, process(1, 5, 2)), (11, process(10, 30, 0))].into()), 37);
        // The parent has waited for the child, which used 4 more.
        assert_eq!(account.update([(10, process(1, 6, 36))].into()), 42);
        assert_eq!(account.update([(10, process(1, 6, 36)), (12, process(10, 7, 0))].into()), 49);
        // It never waits for this one.
        assert_eq!(account.update([(10, process(1, 6, 36))].into()), 49);
        // A child that was never seen.
        assert_eq!(account.update([(10, process(1, 6, 39))].into()), 52);
    }

    #[test]
    fn descendants_count_for_the_ancestor_that_is_left() {
        let mut account = CpuAccount::default();
        let all = [(10, process(1, 1, 0)), (11, process(10, 10, 0)), (12, process(11, 100, 0))];
        assert_eq!(account.update(all.into()), 111);
        assert_eq!(account.update([(10, process(1, 1, 112))].into()), 113);
    }

    #[test]
    fn a_process_with_the_id_of_another_one_is_a_new_one() {
        let mut account = CpuAccount::default();
        assert_eq!(account.update([(10, process(1, 5, 0)), (11, process(10, 8, 0))].into()), 13);
        let again = Process { started: 2, ..process(10, 3, 0) };
        assert_eq!(account.update([(10, process(1, 5, 0)), (11, again)].into()), 16);
        assert_eq!(account.update([].into()), 16);
    }
}
