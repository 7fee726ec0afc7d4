//! `kubewright dev`, on a scaffolded project that is edited while it runs.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::GroupVersionKind,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

/// The longest wait: the first build may include the dependencies of the project.
const TIMEOUT: Duration = Duration::from_secs(900);

const CONTROLLER: &str = "src/controller/cow.rs";
const TYPES: &str = "src/api/v1/cow.rs";
const TYPES_OF_V2: &str = "src/api/v2/cow.rs";
const WEBHOOK: &str = "src/webhook/v1/cow.rs";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A scaffolded project, with the target directory of this repository.
struct Project {
    folder: TempDir,
}

impl Project {
    fn new() -> Self {
        let project = Self { folder: tempfile::tempdir().unwrap() };
        let sdk = repository().display().to_string();
        for line in [
            &["init", "--domain", "example.com", "--project-name", "garden", "--sdk", &sdk][..],
            &["create", "api", "--group", "farm", "--version", "v1", "--kind", "Cow", "--resource", "--controller"],
            &["create", "webhook", "--group", "farm", "--version", "v1", "--kind", "Cow", "--defaulting"],
        ] {
            project.run(line);
        }
        // With the same versions and settings, dependencies are compiled once for all projects.
        fs::copy(repository().join("Cargo.lock"), project.path("Cargo.lock")).unwrap();
        project
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn kubewright(&self) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_kubewright"));
        let target = program.parent().and_then(Path::parent).unwrap();
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("CARGO_TARGET_DIR", target).env("CARGO_NET_OFFLINE", "true");
        command.env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");
        command
    }

    fn run(&self, line: &[&str]) {
        let output = self.kubewright().args(line).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Replaces a text by writing a new file and renaming it, as some editors do.
    fn edit(&self, file: &str, old: &str, new: &str) {
        let text = fs::read_to_string(self.path(file)).unwrap();
        assert!(text.contains(old), "{old}\nin\n{text}");
        let (beside, path) = (self.path(&format!("{file}~")), self.path(file));
        fs::write(&beside, text.replace(old, new)).unwrap();
        fs::rename(&beside, &path).unwrap();
    }
}

/// A running `kubewright dev`. Dropping it kills it, so that it cannot clean up.
struct Dev {
    child: Child,
    line: String,
    said: Arc<Mutex<String>>,
}

impl Dev {
    fn start(project: &Project, arguments: &[&str]) -> Self {
        let mut command = project.kubewright();
        command.arg("dev").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Neither the command nor the operator uses a proxy for loopback addresses.
        command.env("HTTPS_PROXY", "http://127.0.0.1:9").env("ALL_PROXY", "http://127.0.0.1:9");
        let mut child = command.spawn().unwrap();
        let (said, mut stderr) = (Arc::<Mutex<String>>::default(), child.stderr.take().unwrap());
        let heard = said.clone();
        thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut some) {
                heard.lock().unwrap().push_str(&String::from_utf8_lossy(&some[..count]));
            }
        });
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, line, said }
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits for a condition.
    async fn until(&mut self, what: &str, mut so: impl AsyncFnMut() -> bool) {
        let came = timeout(TIMEOUT, async {
            while !so().await {
                assert_eq!(self.child.try_wait().unwrap(), None, "it has exited: {}", self.said.lock().unwrap());
                sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(came.await.is_ok(), "timed out waiting: {what}; it printed:\n{}", self.said());
    }

    /// Waits until a text was printed a number of times.
    async fn says(&mut self, what: &str, times: usize) {
        let said = self.said.clone();
        self.until(&format!("it prints {what}"), async || said.lock().unwrap().matches(what).count() >= times).await;
    }

    fn kubeconfig(&self) -> PathBuf {
        self.line.trim_end().split_once("export KUBECONFIG=").expect(&self.line).1.into()
    }

    async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    fn end(&mut self) -> ExitStatus {
        let killed = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        self.child.wait().unwrap()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

fn cows(client: &Client) -> Api<DynamicObject> {
    cows_in("v1", client)
}

fn cows_in(version: &str, client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("farm.example.com", version, "Cow");
    Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk_with_plural(&kind, "cows"))
}

async fn create(client: &Client, name: &str, spec: serde_json::Value) -> DynamicObject {
    let cow = json!({"apiVersion": "farm.example.com/v1", "kind": "Cow", "metadata": {"name": name}, "spec": spec});
    cows(client).create(&PostParams::default(), &serde_json::from_value(cow).unwrap()).await.unwrap()
}

/// The message of a cow's first condition.
async fn message(client: &Client, name: &str) -> String {
    let cow = cows(client).get_opt(name).await.unwrap();
    let condition = |cow: DynamicObject| cow.data["status"]["conditions"][0]["message"].as_str().map(Into::into);
    cow.and_then(condition).unwrap_or_default()
}

/// The number of processes of a program.
fn running(program: &str) -> usize {
    let lines = fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines.filter(|line| line.split(|byte| *byte == 0).next() == Some(program.as_bytes())).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_restart_the_operator_and_broken_ones_do_not() {
    let project = Project::new();
    let mut dev = Dev::start(&project, &["--samples"]);
    assert!(dev.line.starts_with("cluster ready in "), "{}", dev.line);
    let program = Path::new(env!("CARGO_BIN_EXE_kubewright")).with_file_name("garden").display().to_string();
    dev.says("reconciling", 1).await;
    let client = dev.client().await;
    dev.until("the sample is reconciled", async || {
        message(&client, "cow-sample").await.contains("create anything yet")
    })
    .await;

    // Edit the types, the controller and the webhook at once.
    project.edit(TYPES, "    pub foo:", "    pub bell: Option<String>,\n    /// As before.\n    pub foo:");
    project.edit(
        WEBHOOK,
        "let (_, _) = (object, request);",
        "let _ = request;\n        object.spec.bell.get_or_insert(\"brass\".into());",
    );
    project.edit(CONTROLLER, "the reconciler doesn't create anything yet", "it moos");
    dev.until("the new operator reconciles", async || message(&client, "cow-sample").await == "it moos").await;
    let made = create(&client, "berta", json!({})).await;
    assert_eq!(made.data["spec"]["bell"], "brass", "the definition has the field, and the webhook sets it");
    assert_eq!(running(&program), 1, "the old one has ended: {}", dev.said());

    project.edit(CONTROLLER, "\"it moos\"", "it moos");
    dev.says("does not compile", 1).await;
    create(&client, "frida", json!({})).await;
    dev.until("the old one works on", async || message(&client, "frida").await == "it moos").await;
    assert!(dev.said().contains("for a change; the previous operator is still running"), "{}", dev.said());
    project.edit(CONTROLLER, "it moos", "\"it grazes\"");
    dev.until("it works again", async || message(&client, "frida").await == "it grazes").await;

    a_version_is_added(&project, &mut dev, &client).await;

    let output =
        project.kubewright().args(["explain", "cow/frida"]).env("KUBECONFIG", dev.kubeconfig()).output().unwrap();
    let explained = String::from_utf8(output.stdout).unwrap();
    assert!(explained.contains("The controller cow last"), "{explained}{}", String::from_utf8_lossy(&output.stderr));

    assert!(dev.end().success(), "{}", dev.said());
    assert_eq!(running(&program), 0, "no process is left");
    assert!(!dev.kubeconfig().exists(), "no file is left");

    let mut dev = Dev::start(&project, &[]);
    dev.says(" apply -k config/samples (or start with --samples)", 1).await;
    assert!(dev.end().success(), "{}", dev.said());
}

/// Adds a version, which becomes the storage version.
async fn a_version_is_added(project: &Project, dev: &mut Dev, client: &Client) {
    create(client, "greta", json!({"foo": "moo"})).await;
    project.run(&["create", "api", "--group", "farm", "--version", "v2", "--kind", "Cow", "--controller=false"]);
    project.edit(TYPES_OF_V2, "pub foo:", "pub sound:");
    let webhook = ["create", "webhook", "--group", "farm", "--version", "v2", "--kind", "Cow"];
    project.run(&[&webhook[..], &["--conversion", "--spoke", "v1"]].concat());
    project.edit(TYPES, "    pub bell:", "    #[convert(default)]\n    pub bell:");
    project.edit(TYPES, "    pub foo:", "    #[convert(renamed = \"sound\")]\n    pub foo:");
    project.edit(CONTROLLER, "it grazes", "it chews");

    dev.until("the new operator reconciles", async || message(client, "greta").await == "it chews").await;
    let greta = cows_in("v2", client).get("greta").await.unwrap();
    assert_eq!(greta.data["spec"]["sound"], "moo", "one that was stored before is converted: {}", dev.said());
    let hilda = json!({
        "apiVersion": "farm.example.com/v2", "kind": "Cow", "metadata": {"name": "hilda"}, "spec": {"sound": "muh"},
    });
    let made = serde_json::from_value(hilda).unwrap();
    cows_in("v2", client).create(&PostParams::default(), &made).await.unwrap();
    dev.until("the new one is reconciled", async || message(client, "hilda").await == "it chews").await;
    let hilda = cows(client).get("hilda").await.unwrap();
    assert_eq!((&hilda.data["spec"]["foo"], &hilda.data["spec"]["bell"]), (&json!("muh"), &json!("brass")));
}

#[test]
fn a_directory_without_a_project_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_kubewright")).arg("dev").current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("kubewright init"), "{said}");
    assert!(output.stdout.is_empty(), "no cluster was started");
}

#[test]
fn a_second_dev_in_a_project_is_an_error_and_leaves_the_first_alone() {
    let project = crate::run::project();
    let start = |arguments: &[&str]| {
        let mut command = crate::run::command(&project, arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, line)
    };
    let end = |child: &mut Child| {
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (child.wait().unwrap(), said)
    };
    let (mut first, line) = start(&["dev"]);
    let kubeconfig = PathBuf::from(line.trim_end().split_once("export KUBECONFIG=").expect(&line).1);
    let written = fs::read_to_string(&kubeconfig).unwrap();

    let (mut second, line) = start(&["dev"]);
    if !line.is_empty() {
        let _ = (second.kill(), first.kill());
        panic!("a second cluster took over the kubeconfig: {line}");
    }
    let output = second.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("is in use by a cluster that is still running") && said.contains("--kubeconfig"), "{said}");
    assert_eq!(fs::read_to_string(&kubeconfig).unwrap(), written);

    let (mut third, line) = start(&["dev", "--kubeconfig", "another"]);
    assert!(line.starts_with("cluster ready in "), "{line}");
    assert!(end(&mut third).0.success());
    assert!(kubeconfig.exists(), "the kubeconfig of the first stays");
    let (status, said) = end(&mut first);
    assert!(status.success(), "{said}");
    assert!(!kubeconfig.exists());
}
