//! Limits of containers' memory, by control groups of Linux
//! (<https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#how-pods-with-resource-limits-are-run>).
//!
//! A container with a limit has a group below `kubewright`, in the hierarchy of version 2 if that has the memory
//! controller, and otherwise in that of version 1. The kernel kills its processes when they need more than the limit.
//! In version 2 it kills all of them, in version 1 one of them, as with a kubelet.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    mounts::{MOUNTS, mount_points},
    view::find_program,
};

/// The parent of the groups of all clusters.
const PARENT: &str = "kubewright";
/// The limit of the group that is created to find out whether that is possible, in bytes.
const TRIAL: u64 = 64 << 20;
/// The attempts to remove the groups when the node ends, and the pause between them. The processes of a group are
/// killed by then, but may not have ended.
const REMOVALS: (u32, Duration) = (50, Duration::from_millis(2));
/// Enters a group, and executes the rest of the arguments.
const SCRIPT: &str = r#"echo 0 >"$0" && exec "$@""#;

/// A hierarchy with the memory controller.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    root: PathBuf,
    version: Version,
}

/// The version of a hierarchy (<https://docs.kernel.org/admin-guide/cgroup-v2.html>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl Version {
    /// Returns the names of the files with the use, and with the events.
    fn files(self) -> (&'static str, &'static str) {
        match self {
            Self::V1 => ("memory.usage_in_bytes", "memory.oom_control"),
            Self::V2 => ("memory.current", "memory.events"),
        }
    }
}

impl Hierarchy {
    /// Finds the hierarchy of the host.
    fn find() -> Option<Self> {
        let table = fs::read(MOUNTS).ok()?;
        let version = |path: &Path, kind: &str| match kind {
            "cgroup" if path.join("memory.limit_in_bytes").exists() => Some(Version::V1),
            "cgroup2" => {
                let controllers = fs::read_to_string(path.join("cgroup.controllers")).ok()?;
                controllers.split_whitespace().any(|name| name == "memory").then_some(Version::V2)
            }
            _ => None,
        };
        let mut hierarchies = mount_points(&table)
            .filter_map(|mount| Some(Self { version: version(&mount.path, mount.kind)?, root: mount.path }));
        hierarchies.next()
    }

    fn parent(&self) -> PathBuf {
        self.root.join(PARENT)
    }

    /// Creates a group with a limit of its memory.
    fn create(&self, name: &str, limit: u64) -> io::Result<PathBuf> {
        let parent = self.parent();
        create_directory(&parent)?;
        if self.version == Version::V2 {
            for above in [&self.root, &parent] {
                fs::write(above.join("cgroup.subtree_control"), "+memory")?;
            }
        }
        let group = parent.join(name);
        create_directory(&group)?;
        let limited = self.limit(&group, limit);
        limited.inspect_err(|_| drop(fs::remove_dir(&group)))?;
        Ok(group)
    }

    fn limit(&self, group: &Path, limit: u64) -> io::Result<()> {
        let write = |name: &str, value: &str| fs::write(group.join(name), value);
        let optional = |name: &str, value: &str| match write(name, value) {
            // Not every kernel counts swapped memory.
            Err(error) if !group.join(name).exists() => {
                tracing::debug!(%error, name, "the kernel has no such limit");
                Ok(())
            }
            written => written,
        };
        let limit = limit.to_string();
        match self.version {
            Version::V1 => {
                // The limit with swap can't be less than the one without, so a higher one has to come first.
                let _lower = write("memory.memsw.limit_in_bytes", &limit);
                write("memory.limit_in_bytes", &limit)?;
                optional("memory.memsw.limit_in_bytes", &limit)
            }
            Version::V2 => {
                optional("memory.swap.max", "0")?;
                optional("memory.oom.group", "1")?;
                write("memory.max", &limit)
            }
        }
    }
}

fn create_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Creates the control groups of a node's containers.
#[derive(Debug)]
pub(crate) struct ControlGroups {
    hierarchy: Hierarchy,
    shell: PathBuf,
    /// The mark of the node's processes, with which the names of its groups begin.
    id: String,
    /// The groups that couldn't be removed yet.
    left: Mutex<Vec<PathBuf>>,
}

impl ControlGroups {
    /// Finds out whether this process can limit the memory of others.
    ///
    /// # Errors
    /// Returns the reason why it can't.
    pub(crate) fn find(id: &str) -> Result<Self, String> {
        let hierarchy = Hierarchy::find().ok_or("the host has no control groups with the memory controller")?;
        let shell = find_program("sh").ok_or("no shell is installed")?;
        let groups = Self { hierarchy, shell, id: id.into(), left: Mutex::default() };
        let group = groups.hierarchy.create(&groups.name("trial"), TRIAL);
        let group = group
            .map_err(|error| format!("can't create a control group in {}: {error}", groups.hierarchy.root.display()))?;
        groups.remove(group);
        Ok(groups)
    }

    fn name(&self, of: &str) -> String {
        format!("{}.{of}", self.id)
    }

    /// Creates the group of a container, whose memory is limited to a number of bytes. `name` is unique on the node.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub(crate) fn create(self: &Arc<Self>, name: &str, limit: u64) -> io::Result<ControlGroup> {
        let group = self.hierarchy.create(&self.name(name), limit)?;
        Ok(ControlGroup { path: group, groups: self.clone() })
    }

    /// Removes a group, and those that couldn't be removed before.
    fn remove(&self, group: PathBuf) {
        let mut left = self.left.lock();
        left.push(group);
        left.retain(|group| fs::remove_dir(group).is_err_and(|error| error.kind() != io::ErrorKind::NotFound));
    }
}

impl Drop for ControlGroups {
    fn drop(&mut self) {
        for _ in 0..REMOVALS.0 {
            let Some(group) = self.left.get_mut().pop() else { break };
            self.remove(group);
            if !self.left.get_mut().is_empty() {
                thread::sleep(REMOVALS.1);
            }
        }
        // Other clusters may have groups.
        let _used = fs::remove_dir(self.hierarchy.parent());
    }
}

/// Removes the groups of a node that was killed, whose processes had this mark.
pub(crate) fn remove_left(id: &str) {
    let Some(parent) = Hierarchy::find().map(|hierarchy| hierarchy.parent()) else { return };
    let prefix = format!("{id}.");
    let groups = fs::read_dir(&parent).into_iter().flatten().flatten();
    for group in groups.filter(|group| group.file_name().to_string_lossy().starts_with(&prefix)) {
        if let Err(error) = fs::remove_dir(group.path()) {
            tracing::debug!(%error, path = %group.path().display(), "failed to remove a control group");
        }
    }
    let _used = fs::remove_dir(parent);
}

/// The control group of one run of a container. Dropping it removes it, once its processes have ended.
#[derive(Debug)]
pub(crate) struct ControlGroup {
    path: PathBuf,
    groups: Arc<ControlGroups>,
}

impl PartialEq for ControlGroup {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for ControlGroup {}

impl ControlGroup {
    /// Returns the command that executes another one in the group.
    pub(crate) fn enter(&self, inner: &Command) -> Command {
        let mut command = Command::new(&self.groups.shell);
        command.args(["-c", SCRIPT]).arg(self.path.join("cgroup.procs"));
        command.arg(inner.get_program()).args(inner.get_args());
        if let Some(directory) = inner.get_current_dir() {
            command.current_dir(directory);
        }
        command
    }

    /// Sets the limit to a number of bytes, unless the container uses more already: then it would be killed at once.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub(crate) fn set_limit(&self, limit: u64) -> io::Result<()> {
        let (usage, _) = self.groups.hierarchy.version.files();
        let usage = fs::read_to_string(self.path.join(usage))?;
        if usage.trim().parse::<u64>().is_ok_and(|usage| usage >= limit) {
            return Err(io::Error::other(format!("the container uses {} bytes", usage.trim())));
        }
        self.groups.hierarchy.limit(&self.path, limit)
    }

    /// Returns whether the kernel has killed a process of the group because the limit was reached.
    pub(crate) fn has_run_out(&self) -> bool {
        let (_, events) = self.groups.hierarchy.version.files();
        fs::read_to_string(self.path.join(events)).is_ok_and(|events| killed(&events) > 0)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        self.groups.remove(std::mem::take(&mut self.path));
    }
}

/// Returns the number of killed processes in a file of events.
fn killed(events: &str) -> u64 {
    let counts = events.lines().filter_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok());
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The groups of the tests' own node; `None` on a host without them.
    fn groups(id: &str) -> Option<Arc<ControlGroups>> {
        ControlGroups::find(id).ok().map(Arc::new)
    }

    fn run(group: &ControlGroup, script: &str) -> std::process::Output {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        group.enter(&command).output().expect("it runs")
    }

    #[test]
    fn a_process_that_needs_more_is_killed() {
        let Some(groups) = groups("kubewright-test-limit") else { return };
        let group = groups.create("a", 8 << 20).expect("a group");
        assert_eq!(String::from_utf8_lossy(&run(&group, "echo $0 here").stdout), "sh here\n");
        assert!(!group.has_run_out());
        let output = run(&group, "head -c 64M /dev/zero | tail -n 1 >/dev/null");
        assert!(!output.status.success() && group.has_run_out(), "{output:?}");
        let path = group.path.clone();
        drop(group);
        drop(groups);
        assert!(!path.exists());
    }

    #[test]
    fn a_limit_changes() {
        let Some(groups) = groups("kubewright-test-change") else { return };
        let group = groups.create("a", 8 << 20).expect("a group");
        group.set_limit(256 << 20).expect("a higher limit");
        assert!(run(&group, "head -c 64M /dev/zero | tail -n 1 >/dev/null").status.success());
        assert!(!group.has_run_out());
        group.set_limit(16 << 20).expect("a lower limit");
        assert!(!run(&group, "head -c 64M /dev/zero | tail -n 1 >/dev/null").status.success());
        assert!(group.has_run_out());
        group.set_limit(1).expect_err("it uses more");
    }

    #[test]
    fn groups_of_killed_nodes_are_removed() {
        let Some(groups) = groups("kubewright-test-left") else { return };
        let group = groups.create("a", TRIAL).expect("a group");
        let path = group.path.clone();
        std::mem::forget(group);
        remove_left("kubewright-test");
        assert!(path.exists(), "it belongs to another node");
        remove_left("kubewright-test-left");
        assert!(!path.exists());
    }

    #[test]
    fn events_of_both_versions() {
        assert_eq!(killed("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), 2);
        assert_eq!(killed("low 0\nhigh 0\nmax 40\noom 1\noom_kill 1\noom_group_kill 1\n"), 1);
        assert_eq!(killed("low 0\nmax 4\noom 0\noom_kill 0\noom_group_kill 0\n"), 0);
        assert_eq!(killed("under_oom 0\n"), 0);
    }
}
