//! Signals, sent to a separate process: this test binary, run again with one test selected.

use std::{
    io::{Read, Write},
    process::{Child, Command, Stdio},
    time::Duration,
};

use kubewright_runtime::signal::Signals;
use rustix::process::{Pid, Signal, kill_process};

const ROLE: &str = "KUBEWRIGHT_TEST_SIGNAL_ROLE";

/// The child process, if this is one; otherwise it does nothing.
#[tokio::test]
async fn child() -> anyhow::Result<()> {
    let Ok(role) = std::env::var(ROLE) else { return Ok(()) };
    let signals = Signals::install()?;
    say("ready\n")?;
    signals.shutdown().cancelled().await;
    say("stopping\n")?;
    if role == "hangs" {
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    say("stopped\n")
}

fn say(word: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    out.write_all(word.as_bytes())?;
    Ok(out.flush()?)
}

/// A child process, which is killed when this is dropped.
struct Process(Child);

impl Process {
    fn start(role: &str) -> anyhow::Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .args(["--exact", "signal::child", "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut process = Self(child);
        process.wait_for("ready\n")?;
        Ok(process)
    }

    /// Reads the child's output until it ends with the word.
    fn wait_for(&mut self, word: &str) -> anyhow::Result<()> {
        let mut seen = Vec::new();
        let out = self.0.stdout.as_mut().ok_or_else(|| anyhow::anyhow!("output is piped"))?;
        while !seen.ends_with(word.as_bytes()) {
            let mut byte = [0];
            anyhow::ensure!(out.read(&mut byte)? == 1, "no {word:?} in {:?}", String::from_utf8_lossy(&seen));
            seen.push(byte[0]);
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process(Pid::from_child(&self.0), signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_first_signal_requests_shutdown() -> anyhow::Result<()> {
    for signal in [Signal::TERM, Signal::INT] {
        let mut process = Process::start("ends")?;
        process.signal(signal)?;
        process.wait_for("stopping\n")?;
        process.wait_for("stopped\n")?;
        assert_eq!(process.0.wait()?.code(), Some(0));
    }
    Ok(())
}

#[test]
fn the_second_signal_ends_the_process() -> anyhow::Result<()> {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut process = Process::start("hangs")?;
        process.signal(Signal::TERM)?;
        process.wait_for("stopping\n")?;
        process.signal(signal)?;
        assert_eq!(process.0.wait()?.code(), Some(code));
    }
    Ok(())
}
