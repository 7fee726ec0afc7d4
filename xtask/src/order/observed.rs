//! Programs under valgrind, which records the instructions that they execute.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::steps::run;

/// A program that runs under valgrind.
pub(super) struct Observed {
    program: PathBuf,
    profile: PathBuf,
    log: PathBuf,
    child: Child,
}

impl Observed {
    /// Starts a program. Everything that is written is in the folder.
    pub(super) fn start(program: &Path, arguments: &[&str], folder: &Path) -> Result<Self> {
        // The profile names it so.
        let program = fs::canonicalize(program).with_context(|| format!("find {}", program.display()))?;
        let [profile, log] = ["profile", "log"].map(|name| folder.join(name));
        remove(&profile)?;
        let output = fs::File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--dump-instr=yes", "--compress-pos=no", "--compress-strings=no"]);
        command.arg(format!("--callgrind-out-file={}", profile.display())).arg(&program).args(arguments);
        command.stdin(Stdio::null()).stdout(output.try_clone().context("share the log")?).stderr(output);
        let child = command.spawn().with_context(|| format!("start {command:?}"))?;
        Ok(Self { program, profile, log, child })
    }

    /// Waits until something holds. Returns whether it does; not so after the longest time, or after the program has
    /// ended.
    pub(super) fn wait(&mut self, longest: Duration, mut holds: impl FnMut() -> bool) -> Result<bool> {
        let mut waited = Duration::ZERO;
        while !holds() {
            if waited >= longest || self.child.try_wait().context("look at valgrind")?.is_some() {
                return Ok(false);
            }
            thread::sleep(Duration::from_secs(1));
            waited += Duration::from_secs(1);
        }
        Ok(true)
    }

    /// Ends the program as Ctrl+C does, and returns the addresses of its instructions that were executed.
    pub(super) fn end(mut self) -> Result<BTreeSet<u64>> {
        let stopped = run(Command::new("kill").args(["-INT", &self.child.id().to_string()]));
        let status = self.child.wait().context("wait for valgrind")?;
        if stopped.is_err() || !status.success() {
            bail!("{} ended with {status}; see {}", self.program.display(), self.log.display());
        }
        let text = fs::read_to_string(&self.profile).with_context(|| format!("read {}", self.profile.display()))?;
        let executed = executed(&text, &self.program.display().to_string());
        if executed.is_empty() {
            bail!("{} has no instruction of {}", self.profile.display(), self.program.display());
        }
        Ok(executed)
    }
}

/// Removes a file if it exists.
pub(super) fn remove(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", file.display()))
        }
        _ => Ok(()),
    }
}

/// Returns the addresses of executed instructions of a program in a profile of callgrind.
fn executed(profile: &str, program: &str) -> BTreeSet<u64> {
    let mut addresses = BTreeSet::new();
    let mut is_program = false;
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_program = object == program;
        } else if is_program && let Some((address, _)) = line.strip_prefix("0x").and_then(|rest| rest.split_once(' ')) {
            addresses.extend(u64::from_str_radix(address, 16).ok());
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_program_are_found() {
        let profile = "positions: instr line\nob=/a/kubewright\nfn=f\n0x80cf00 1 5\ncalls=1 0x80cf20 2\n0x80cf04 1 9\n\n\
            ob=/lib/libc.so.6\n0x10 1 1\n";
        assert_eq!(executed(profile, "/a/kubewright"), BTreeSet::from([0x80_cf00, 0x80_cf04]));
    }
}
