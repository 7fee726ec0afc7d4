//! A running `kubewright cluster`, and kubectl for it.

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use kube::{Client, Config, config::KubeConfigOptions};
use kubewright::{prelude::Manager, webhook::WebhookServer};
use kubewright_apimachinery::clock::SystemClock;
use tokio::{runtime::Runtime, sync::oneshot, task::JoinHandle};

/// The longest wait for a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running command. Dropping it stops it.
pub(crate) struct TestCluster {
    pub(crate) child: Child,
    pub(crate) ready_line: String,
    pub(crate) folder: tempfile::TempDir,
    operators: Option<Operators>,
}

struct Operators {
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    manager: JoinHandle<()>,
}

impl TestCluster {
    /// Starts `kubewright cluster`, and waits for its first line.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_in(&std::env::temp_dir(), arguments)
    }

    /// Like [`TestCluster::start`], with a temporary directory.
    pub(crate) fn start_in(temporary: &Path, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Resets SIGHUP: under nohup the command would inherit that it is ignored, and respect it.
        let mut child = Command::new("env")
            .args(["--default-signal=HUP", env!("CARGO_BIN_EXE_kubewright"), "cluster", "--kubeconfig"])
            .arg(folder.path().join("kubeconfig"))
            .args(arguments)
            .env("TMPDIR", temporary)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready_line = String::new();
        stdout.read_line(&mut ready_line).unwrap();
        assert!(ready_line.starts_with("cluster ready in "), "{ready_line:?}");
        Self { child, ready_line, folder, operators: None }
    }

    /// A cluster with the CRDs installed by kubectl and the operators running in one manager.
    pub(crate) fn with_operators() -> Self {
        let mut cluster = Self::start(&["--pods", "run"]);
        for operator in ["at", "cronjob", "podset"] {
            cluster.kubectl(&["apply", "-f", &operator_file(operator, "config/crd/bases")]);
        }
        cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"]);
        cluster.run_operators();
        cluster
    }

    fn run_operators(&mut self) {
        let runtime = Runtime::new().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let client = runtime.block_on(self.client());
        let manager = runtime.spawn(async move {
            let manager = Manager::new(client).clock(SystemClock::shared());
            let manager = podset_operator::register(at_operator::register(manager));
            let manager = cronjob_operator::register(manager).webhook_server(WebhookServer::local().name("test"));
            manager.run_until(async { drop(stopped.await) }).await.unwrap();
        });
        self.operators = Some(Operators { runtime, stop, manager });
    }

    /// Returns a client for the kubeconfig of the command.
    pub(crate) async fn client(&self) -> Client {
        let kubeconfig = kube::config::Kubeconfig::read_from(self.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Returns the address in the first line.
    pub(crate) fn address(&self) -> String {
        let (_, rest) = self.ready_line.split_once("https://").unwrap();
        rest.split(',').next().unwrap().to_owned()
    }

    /// Writes a file, and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Returns a kubectl command, not yet started.
    pub(crate) fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        // A separate home directory separates the discovery caches of tests.
        command.args(arguments).env("KUBECONFIG", self.kubeconfig()).env("HOME", self.folder.path());
        command
    }

    /// Runs kubectl, which may fail.
    pub(crate) fn try_kubectl(&self, arguments: &[&str]) -> Output {
        let mut command = self.kubectl_command(arguments);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.expect("kubectl runs (cargo xtask test installs it)");
        let (done, output) = mpsc::channel();
        let pid = child.id();
        thread::spawn(move || done.send(child.wait_with_output()));
        let Ok(output) = output.recv_timeout(PATIENCE) else {
            let _ = Command::new("kill").arg(pid.to_string()).status();
            panic!("kubectl {} did not end", arguments.join(" "));
        };
        output.unwrap()
    }

    /// Runs kubectl, which must succeed, and returns its output.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.try_kubectl(arguments);
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "kubectl {}: {}\n{stdout}{stderr}", arguments.join(" "), output.status);
        stdout.into_owned()
    }

    /// Runs kubectl, which must fail, and returns its error output.
    pub(crate) fn kubectl_fails(&self, arguments: &[&str]) -> String {
        let output = self.try_kubectl(arguments);
        assert!(!output.status.success(), "kubectl {} succeeded", arguments.join(" "));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Runs kubectl until its output matches.
    pub(crate) fn kubectl_until(&self, arguments: &[&str], wished: impl Fn(&str) -> bool) -> String {
        let mut printed = String::new();
        // The deadline is a number of tries, each of which takes some tenths of a second.
        for _ in 0..150 {
            printed = self.kubectl(arguments);
            if wished(&printed) {
                return printed;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("kubectl {} never printed what was wished; last:\n{printed}", arguments.join(" "));
    }

    /// Sends a signal to the command, and waits for its exit.
    pub(crate) fn terminate(&mut self, signal: &str) -> std::process::ExitStatus {
        self.stop_operators();
        let killed = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        self.child.wait().unwrap()
    }

    fn stop_operators(&mut self) {
        if let Some(Operators { runtime, stop, manager }) = self.operators.take() {
            // If the manager has already ended, joining it reports why.
            let _ = stop.send(());
            runtime.block_on(manager).unwrap();
        }
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.stop_operators();
        }
        if let Ok(None) = self.child.try_wait() {
            let _ = Command::new("kill").arg(self.child.id().to_string()).status();
            let _ = self.child.wait();
        }
    }
}

/// The output of a child process, line by line.
pub(crate) fn lines_of(reader: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Waits for a matching line, and returns all lines up to it.
pub(crate) fn line_until(lines: &mpsc::Receiver<String>, wished: impl Fn(&str) -> bool) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => seen.push(line),
            Err(_) => panic!("the line did not come; until then:\n{}", seen.join("\n")),
        }
        if seen.last().is_some_and(|line| wished(line)) {
            return seen;
        }
    }
}

/// The command under test.
pub(crate) fn kubewright() -> Command {
    Command::new(env!("CARGO_BIN_EXE_kubewright"))
}

/// Returns the path of a file of an operator.
pub(crate) fn operator_file(operator: &str, path: &str) -> String {
    format!("{}/../../operators/{operator}/{path}", env!("CARGO_MANIFEST_DIR"))
}
