//! The network namespace of a pod, as its processes and connections enter it.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::Command,
    time::Duration,
};

use super::view::option;

/// The time after which an attempt to connect fails.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A network namespace. It exists for as long as a process is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkNamespace {
    /// The program `nsenter`.
    pub(crate) nsenter: PathBuf,
    /// The file of the namespace below `/proc`.
    pub(crate) path: PathBuf,
    /// The file of the pod's IPC namespace, unless it is the host's.
    pub(crate) ipc: Option<PathBuf>,
}

impl NetworkNamespace {
    /// Returns the command that executes another one in the namespace. A program without a path is looked up in the
    /// `PATH` of the returned command's environment.
    pub(crate) fn enter(&self, inner: &Command) -> Command {
        let mut command = Command::new(&self.nsenter);
        command.arg(option("--net=", &self.path)).args(self.ipc.as_ref().map(|path| option("--ipc=", path)));
        command.arg("--").arg(inner.get_program()).args(inner.get_args());
        if let Some(directory) = inner.get_current_dir() {
            command.current_dir(directory);
        }
        command
    }

    /// Connects to an address, as a process in the namespace does.
    ///
    /// # Errors
    /// If nothing listens there, or if the namespace is gone.
    pub(crate) async fn connect(&self, address: SocketAddr) -> io::Result<tokio::net::TcpStream> {
        let stream = self.run(move || TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)).await?;
        stream.set_nonblocking(true)?;
        tokio::net::TcpStream::from_std(stream)
    }

    /// Runs a function in the namespace. A socket belongs to the namespace in which it was created.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        function: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (path, (sender, receiver)) = (self.path.clone(), tokio::sync::oneshot::channel());
        // A thread of its own, since it stays in the namespace.
        std::thread::Builder::new().name("network-namespace".into()).spawn(move || {
            let result = enter(&path).and_then(|()| function());
            // The caller may not wait any more.
            let _gone = sender.send(result);
        })?;
        receiver.await.map_err(io::Error::other)?
    }
}

#[cfg(target_os = "linux")]
fn enter(path: &std::path::Path) -> io::Result<()> {
    use std::{fs::File, os::fd::AsFd};

    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

    Ok(move_into_link_name_space(File::open(path)?.as_fd(), Some(LinkNameSpaceType::Network))?)
}

#[cfg(not(target_os = "linux"))]
fn enter(_path: &std::path::Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
