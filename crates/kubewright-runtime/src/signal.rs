//! SIGTERM and SIGINT: the first starts a graceful shutdown, the second exits the process at once.

use std::{io, process};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Handles the signals until it is dropped. After that they have no effect, so keep it until the program ends.
/// [`Manager::run`](crate::manager::Manager::run) has its own. A program that runs something beside the manager uses it
/// so:
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
    /// Installs the handlers. Call it in a tokio runtime, once per process.
    ///
    /// # Errors
    /// If the operating system refuses the handlers.
    pub fn install() -> io::Result<Self> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = CancellationToken::new();
        let first = shutdown.clone();
        let task = tokio::spawn(async move {
            let name = next(&mut terminate, &mut interrupt).await.0;
            tracing::info!("received {name}, shutting down; a second signal exits at once");
            first.cancel();
            let (name, code) = next(&mut terminate, &mut interrupt).await;
            tracing::warn!("received {name} again, exiting");
            process::exit(code);
        });
        Ok(Self { shutdown, task })
    }

    /// Returns a token that is cancelled by the first signal.
    pub fn shutdown(&self) -> CancellationToken {
        self.shutdown.clone()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits for the next signal. Returns its name, and the exit code that shells report for it.
async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> (&'static str, i32) {
    tokio::select! {
        biased;
        _ = terminate.recv() => ("SIGTERM", 143),
        _ = interrupt.recv() => ("SIGINT", 130),
    }
}
