//! Processes that end with us: cargo, and the operator.

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

/// A process and those that it starts, which stay in its group. Dropping it kills them all.
///
/// They are a group of their own, so that Ctrl-C at a terminal comes to us alone, and we end them in order.
#[derive(Debug)]
pub(super) struct Group {
    child: Child,
}

impl Group {
    /// Starts a command as the leader of a group.
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        use std::os::unix::process::CommandExt;
        command.process_group(0);
        let child = tokio::process::Command::from(command).spawn()?;
        Ok(Self { child })
    }

    /// What it says, if that was asked for.
    pub(super) fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits for its end, and kills what it leaves behind. It may be given up and called again.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        let id = self.id();
        let status = self.child.wait().await;
        // The id stays taken while anyone is in the group; nobody can have got it anew within this moment.
        kill(id);
        status
    }

    /// Asks it to end, and waits; whoever takes longer than `patience` is killed. Whether it ended by itself.
    pub(super) async fn stop(&mut self, patience: Duration) -> bool {
        if let Some(id) = self.id() {
            // It may have ended just now.
            let _ = kill_process(id, Signal::TERM);
        }
        if timeout(patience, self.ended()).await.is_ok() {
            return true;
        }
        kill(self.id());
        let _ = self.ended().await;
        false
    }

    /// Its id, as long as it wasn't seen to have ended: until then no other process has it.
    fn id(&self) -> Option<Pid> {
        self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
    }
}

/// Kills a group, if anyone is left in it.
fn kill(group: Option<Pid>) {
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        kill(self.id());
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// A shell with a child, which writes both their ids into a file.
    fn family(folder: &Path, trap: &str) -> Group {
        let script = format!("{trap}\nsleep 4567 &\necho $$ $! > ids.new\nmv ids.new ids\nwait");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(folder);
        Group::start(command).unwrap()
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
        until("it starts", || folder.join("ids").exists()).await;
        fs::read_to_string(folder.join("ids")).unwrap().split_whitespace().map(Into::into).collect()
    }

    /// Whether a process is there, one that nobody has taken notice of yet left out.
    fn lives(id: &str) -> bool {
        let status = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        status.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
    }

    #[tokio::test]
    async fn dropping_it_ends_all() {
        let folder = tempfile::tempdir().unwrap();
        let group = family(folder.path(), "");
        let ids = ids(folder.path()).await;
        assert!(ids.iter().all(|id| lives(id)), "{ids:?}");
        drop(group);
        until("all have ended", || !ids.iter().any(|id| lives(id))).await;
    }

    #[tokio::test]
    async fn who_does_not_end_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut polite = family(folder.path(), "trap 'exit 0' TERM");
        let left = ids(folder.path()).await;
        assert!(polite.stop(Duration::from_secs(30)).await);
        until("its child is not left", || !left.iter().any(|id| lives(id))).await;
        let folder = tempfile::tempdir().unwrap();
        let mut deaf = family(folder.path(), "trap '' TERM");
        let ids = ids(folder.path()).await;
        assert!(!deaf.stop(Duration::from_millis(100)).await);
        until("all have ended", || !ids.iter().any(|id| lives(id))).await;
    }
}
