//! The Chromium process, and the pipes that control it.

use std::{
    env, fs,
    fs::File,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::unix::pipe::{Receiver, Sender},
};

use crate::{BrowserError, page_events::PageEvents};

/// The names of the program in distributions.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
/// The environment variable with the path of another program.
const PROGRAM: &str = "CHROMIUM";
/// Chromium reads commands from file descriptor 3 and answers on 4. Without unsafe code only a shell can pass these.
const SCRIPT: &str = r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null"#;
/// The number of checks whether killed processes are gone, and the delay between them.
const ATTEMPTS: u32 = 200;
const MOMENT: Duration = Duration::from_millis(10);
/// The name of the log file within the profile.
const LOG: &str = "stderr";

/// Chromium's flags: no screen, no sandbox (root can't have one), and no network access of its own.
const FLAGS: [&str; 14] = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.*",
];

/// A running Chromium.
#[derive(Debug)]
pub(crate) struct Chromium {
    child: Child,
    to: Sender,
    from: BufReader<Receiver>,
    calls: u64,
    profile: TempDir,
}

impl Chromium {
    /// Starts Chromium in a process group of its own, with a fresh profile.
    pub(crate) fn start() -> Result<Self, BrowserError> {
        let program = find().ok_or(BrowserError::Missing)?;
        let failed = |source| BrowserError::Start { program: program.display().to_string(), source };
        let profile = tempfile::Builder::new().prefix("kubewright-browser-").tempdir().map_err(failed)?;
        let log = File::create(profile.path().join(LOG)).map_err(failed)?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "sh"]).arg(&program).args(FLAGS);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (to, from) = pipes.ok_or_else(|| failed(std::io::ErrorKind::BrokenPipe.into()))?;
        let to = Sender::from_owned_fd(OwnedFd::from(to)).map_err(failed)?;
        let from = BufReader::new(Receiver::from_owned_fd(OwnedFd::from(from)).map_err(failed)?);
        Ok(Self { child, to, from, calls: 0, profile })
    }

    /// Sends a command, and takes in events until the answer arrives.
    pub(crate) async fn call(
        &mut self,
        session: Option<&str>,
        method: &str,
        parameters: Value,
        events: &mut PageEvents,
    ) -> Result<Value, BrowserError> {
        self.calls += 1;
        let id = self.calls;
        let mut command = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = session {
            command["sessionId"] = session.into();
        }
        let mut text = command.to_string();
        text.push('\0');
        self.to.write_all(text.as_bytes()).await.map_err(|_| self.gone())?;
        loop {
            let mut message = self.read().await?;
            if message["id"] == id {
                return match message["error"]["message"].as_str() {
                    Some(error) => Err(BrowserError::Refused { method: method.into(), message: error.into() }),
                    None => Ok(message["result"].take()),
                };
            }
            events.note(&message);
        }
    }

    async fn read(&mut self) -> Result<Value, BrowserError> {
        let mut message = Vec::new();
        let count = self.from.read_until(0, &mut message).await.map_err(|_| self.gone())?;
        if message.pop() != Some(0) || count == 0 {
            return Err(self.gone());
        }
        serde_json::from_slice(&message).map_err(|_| BrowserError::InvalidMessage)
    }

    fn gone(&self) -> BrowserError {
        let log = fs::read_to_string(self.profile.path().join(LOG)).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        BrowserError::Exited(lines[lines.len().saturating_sub(5)..].join("\n"))
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            // It may have ended before.
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.child.wait();
            // Its child processes end a moment later, and may write into the profile until then.
            for _ in 0..ATTEMPTS {
                if test_kill_process_group(group).is_err() {
                    break;
                }
                sleep(MOMENT);
            }
        }
    }
}

/// Returns the program: the one that the environment names, or the first on the path.
fn find() -> Option<PathBuf> {
    if let Some(program) = env::var_os(PROGRAM).filter(|program| !program.is_empty()) {
        return Some(program.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = env::split_paths(&path).collect();
    let candidates = NAMES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    candidates.into_iter().find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of processes with this text in their command line.
    fn processes(part: &str) -> usize {
        let commands = fs::read_dir("/proc").unwrap().flatten().map(|entry| fs::read(entry.path().join("cmdline")));
        commands.flatten().filter(|command| String::from_utf8_lossy(command).contains(part)).count()
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn nothing_stays_behind() {
        let mut chromium = Chromium::start().unwrap();
        let version = chromium.call(None, "Browser.getVersion", json!({}), &mut PageEvents::default()).await.unwrap();
        assert!(version["product"].as_str().unwrap().contains("Chrome/"), "{version}");
        let profile = chromium.profile.path().to_owned();
        assert!(processes(&profile.to_string_lossy()) > 1);
        drop(chromium);
        assert!(!profile.exists());
        // Killed processes take a moment to end.
        let gone = async {
            while processes(&profile.to_string_lossy()) > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(crate::DEADLINE, gone).await.unwrap();
    }
}
