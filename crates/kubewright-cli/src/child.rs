//! A command that runs in the foreground of this process, as under `env` or `timeout`.

use std::{
    ffi::OsString,
    fs::File,
    future::poll_fn,
    io::{self, ErrorKind},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::ExitStatus,
    task::Poll,
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use tokio::{
    process::Command,
    signal::unix::{self, SignalKind, signal},
};

use crate::cluster::ignores_hang_up;

/// The signals that are forwarded.
const FORWARDED: [(Signal, fn() -> SignalKind); 6] = [
    (Signal::TERM, SignalKind::terminate),
    (Signal::INT, SignalKind::interrupt),
    (Signal::HUP, SignalKind::hangup),
    (Signal::QUIT, SignalKind::quit),
    (Signal::USR1, SignalKind::user_defined1),
    (Signal::USR2, SignalKind::user_defined2),
];

/// The signals to forward to a command.
pub(crate) struct Forwarder {
    signals: Vec<(Signal, unix::Signal)>,
}

impl Forwarder {
    /// Installs the handlers. Must be called before anything is started that a signal has to stop.
    pub(crate) fn listen() -> Result<Self> {
        let wanted = FORWARDED.into_iter().filter(|(number, _)| *number != Signal::HUP || !ignores_hang_up());
        let listen = |(number, kind): (Signal, fn() -> SignalKind)| {
            Ok((number, signal(kind()).with_context(|| format!("listen for {number:?}"))?))
        };
        Ok(Self { signals: wanted.map(listen).collect::<Result<_>>()? })
    }

    /// Receives the next signal.
    pub(crate) async fn recv(&mut self) -> Signal {
        poll_fn(|context| {
            for (number, stream) in &mut self.signals {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Runs a command to its end, with `KUBECONFIG` set to `kubeconfig`.
    ///
    /// # Errors
    /// If the command can't be started.
    pub(crate) async fn run(&mut self, line: &[OsString], kubeconfig: &Path) -> io::Result<ExitStatus> {
        let (program, arguments) = line.split_first().ok_or(ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).env("KUBECONFIG", kubeconfig);
        // Some clients prefer the cluster of the pod that they run in.
        command.env_remove("KUBERNETES_SERVICE_HOST").env_remove("KUBERNETES_SERVICE_PORT");
        let mut child = command.spawn()?;
        loop {
            tokio::select! {
                status = child.wait() => return status,
                signal = self.recv() => forward(signal, child.id()),
            }
        }
    }
}

/// Sends a signal to the command, unless the terminal has already sent it to both processes.
fn forward(signal: Signal, child: Option<u32>) {
    let by_terminal = matches!(signal, Signal::INT | Signal::QUIT) && is_in_foreground();
    let id = child.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(id) = id.filter(|_| !by_terminal) {
        // The command may have ended already.
        let _ = kill_process(id, signal);
    }
}

/// Returns whether this process, and so the command, receives the signals of the keys of its terminal.
fn is_in_foreground() -> bool {
    let terminal = File::open("/dev/tty");
    terminal.is_ok_and(|terminal| rustix::termios::tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}

/// Returns the exit code of a command as shells report it.
pub(crate) fn exit_code(ended: &io::Result<ExitStatus>) -> u8 {
    match ended {
        Ok(status) => {
            let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
            code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => 127,
        Err(_) => 126,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        let ended = |status| exit_code(&Ok(ExitStatus::from_raw(status)));
        assert_eq!([ended(0), ended(3 << 8), ended(255 << 8), ended(15)], [0, 3, 255, 143]);
        let failed = |kind: ErrorKind| exit_code(&Err(kind.into()));
        assert_eq!([failed(ErrorKind::NotFound), failed(ErrorKind::PermissionDenied)], [127, 126]);
    }
}
