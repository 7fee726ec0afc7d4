//! SIGTERM and SIGINT: the first asks for a graceful end, the second ends the process at once.

use std::{io, process};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Listens for the signals while it lives. Dropped, it leaves them unheard, so keep it until the program ends.
/// [`Manager::run`](crate::manager::Manager::run) has one of its own; a program that runs something beside it does so:
///
/// ```no_run
/// # use kubewright_runtime::{manager::Manager, signal::Signals};
/// # async fn serve() {}
/// # async fn example(manager: Manager) -> Result<(), Box<dyn std::error::Error>> {
/// let signals = Signals::install()?;
/// let page = tokio::spawn(signals.shutdown().run_until_cancelled_owned(serve()));
/// manager.run_until(signals.shutdown().cancelled_owned()).await?;
/// page.await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Signals {
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Signals {
    /// Starts to listen. Call it inside a tokio runtime, once per process.
    ///
    /// # Errors
    /// When the operating system refuses the handlers.
    pub fn install() -> io::Result<Self> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = CancellationToken::new();
        let first = shutdown.clone();
        let task = tokio::spawn(async move {
            let name = next(&mut terminate, &mut interrupt).await.0;
            tracing::info!("{name} received, shutting down; a second one ends the process at once");
            first.cancel();
            let (name, code) = next(&mut terminate, &mut interrupt).await;
            tracing::warn!("{name} received again, exiting");
            process::exit(code);
        });
        Ok(Self { shutdown, task })
    }

    /// Cancelled by the first signal.
    pub fn shutdown(&self) -> CancellationToken {
        self.shutdown.clone()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The next signal: its name, and the exit code that shells give a process which it ended.
async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> (&'static str, i32) {
    tokio::select! {
        _ = terminate.recv() => ("SIGTERM", 143),
        _ = interrupt.recv() => ("SIGINT", 130),
    }
}
