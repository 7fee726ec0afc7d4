//! Child processes that end with this process: cargo and the operator.

use std::{
    io,
    process::{Command, ExitStatus},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::{
    process::{Child, ChildStdout},
    time::timeout,
};

/// A child process and its descendants, as a process group. Dropping it kills the whole group.
///
/// The group is separate from that of this process, so that Ctrl-C in a terminal only reaches this process, which then
/// stops its children in order.
#[derive(Debug)]
pub(super) struct ProcessGroup {
    child: Child,
}

impl ProcessGroup {
    /// Starts a command as the leader of a new group.
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        use std::os::unix::process::CommandExt;
        command.process_group(0);
        let child = tokio::process::Command::from(command).spawn()?;
        Ok(Self { child })
    }

    /// Takes the standard output of the process, if it is a pipe.
    pub(super) fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits until the process exits, and kills the rest of its group. Cancel-safe.
    pub(super) async fn exited(&mut self) -> io::Result<ExitStatus> {
        let id = self.id();
        let status = self.child.wait().await;
        // The id cannot be reused while the group has members. If the group has none, the id was free only for a
        // moment.
        kill(id);
        status
    }

    /// Sends SIGTERM, waits for at most `limit`, then kills the group. Returns whether the process exited by itself.
    pub(super) async fn stop(&mut self, limit: Duration) -> bool {
        if let Some(id) = self.id() {
            // The process may have exited already.
            let _ = kill_process(id, Signal::TERM);
        }
        if timeout(limit, self.exited()).await.is_ok() {
            return true;
        }
        kill(self.id());
        let _ = self.exited().await;
        false
    }

    /// Returns the id of the process until it has been waited for. Until then, no other process can have that id.
    fn id(&self) -> Option<Pid> {
        self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
    }
}

/// Kills a group, if it has members.
fn kill(group: Option<Pid>) {
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        kill(self.id());
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// Starts a shell with a child. The shell writes the ids of both to a file.
    fn shell_with_child(folder: &Path, trap: &str) -> ProcessGroup {
        let script = format!("{trap}\nsleep 4567 &\necho $$ $! > ids.new\nmv ids.new ids\nwait");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(folder);
        ProcessGroup::start(command).unwrap()
    }

    async fn until(what: &str, mut so: impl FnMut() -> bool) {
        let came = timeout(Duration::from_secs(30), async {
            while !so() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        came.await.unwrap_or_else(|_| panic!("{what}"));
    }

    async fn ids(folder: &Path) -> Vec<String> {
        until("the shell starts", || folder.join("ids").exists()).await;
        fs::read_to_string(folder.join("ids")).unwrap().split_whitespace().map(Into::into).collect()
    }

    /// Returns whether a process exists and is not a zombie.
    fn is_alive(id: &str) -> bool {
        let status = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        status.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
    }

    #[tokio::test]
    async fn dropping_a_group_kills_its_processes() {
        let folder = tempfile::tempdir().unwrap();
        let group = shell_with_child(folder.path(), "");
        let ids = ids(folder.path()).await;
        assert!(ids.iter().all(|id| is_alive(id)), "{ids:?}");
        drop(group);
        until("all processes are gone", || !ids.iter().any(|id| is_alive(id))).await;
    }

    #[tokio::test]
    async fn a_process_that_ignores_sigterm_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut obedient = shell_with_child(folder.path(), "trap 'exit 0' TERM");
        let left = ids(folder.path()).await;
        assert!(obedient.stop(Duration::from_secs(30)).await);
        until("its child is killed", || !left.iter().any(|id| is_alive(id))).await;
        let folder = tempfile::tempdir().unwrap();
        let mut stubborn = shell_with_child(folder.path(), "trap '' TERM");
        let ids = ids(folder.path()).await;
        assert!(!stubborn.stop(Duration::from_millis(100)).await);
        until("all processes are gone", || !ids.iter().any(|id| is_alive(id))).await;
    }
}
