//! External plugins that use kubebuilder's protocol, written as shell scripts.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

use crate::folder::Folder;

/// A directory of plugins, and a project.
struct Scene {
    project: Folder,
    plugins: tempfile::TempDir,
}

/// The responses of the test plugin by command, as branches of a shell `case`.
const GREET: &str = r#"
'"command":"flags"'*--init*) say '{"flags":[{"Name":"greeting","Type":"string","Default":"Ahoy","Usage":"What to say."},{"Name":"loud","Type":"bool"}]}' ;;
'"command":"flags"'*--api*) say '{"flags":[{"Name":"masts","Type":"int"},{"Name":"kind","Type":"string"}]}' ;;
'"command":"flags"'*) say '{"flags":null}' ;;
'"command":"metadata"'*) say '{"metadata":{"description":"Greets whoever comes.","examples":"kubewright init --plugins greet.example.com/v1 --greeting Hello"}}' ;;
'"command":"init"'*) say '{"universe":{"GREETING":"Ahoy\n","./docs/crew/README":"Crew\n"}}' ;;
'"command":"create api"'*) echo "on the way to port" >&2; say '{"universe":{"GREETING":"Ahoy again\n"}}' ;;
'"command":"edit"'*) say '{"universe":{"edited":"yes\n","PROJECT":"mine"}}' ;;
*) say '{"error":true,"errorMsgs":["not this one"]}' ;;
"#;

impl Scene {
    fn new() -> Self {
        let scene = Self { project: Folder::new("ship"), plugins: tempfile::tempdir().unwrap() };
        scene.plugin("greet.example.com/v1", "greet.example.com.sh", &answers(GREET));
        scene
    }

    fn plugin(&self, key: &str, file: &str, script: &str) -> PathBuf {
        let folder = self.plugins.path().join(key);
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join(file);
        fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    fn run(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubewright"));
        command.args(line.split_whitespace()).current_dir(self.project.path()).stdin(Stdio::null());
        command.env("EXTERNAL_PLUGINS_PATH", self.plugins.path()).output().unwrap()
    }

    #[track_caller]
    fn done(&self, line: &str) -> String {
        let output = self.run(line);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "kubewright {line}: {stderr}");
        stderr
    }

    /// Asserts that a command fails with some texts, and changes nothing.
    #[track_caller]
    fn refused(&self, line: &str, says: &[&str]) {
        let before = self.project.all();
        let output = self.run(line);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(
            matches!(output.status.code(), Some(1 | 2)) && stderr.contains("error: "),
            "kubewright {line}: {stderr}"
        );
        for words in says {
            assert!(stderr.contains(words), "kubewright {line}: {words:?} is not in {stderr}");
        }
        assert!(self.project.all() == before, "kubewright {line} has changed something");
    }

    /// Returns the last request that the plugin received for a command.
    fn asked(&self, command: &str) -> Value {
        let file = self.plugins.path().join(command.replace(' ', "-"));
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
    }
}

/// Returns a script that stores each request in the directory of plugins, and selects its response from `cases` by the
/// command and the arguments of the request.
fn answers(cases: &str) -> String {
    format!(
        r#"say() {{ printf '%s\n' "$1"; }}
question=$(cat)
command=$(printf '%s' "$question" | sed 's/.*"command":"\([a-z ]*\)".*/\1/' | tr ' ' -)
printf '%s' "$question" > "$(dirname "$0")/../../$command"
arguments=$(printf '%s' "$question" | sed 's/.*"args":\(\[[^]]*\]\).*/\1/')
case "\"command\":\"$(echo "$command" | tr - ' ')\"$arguments" in
{cases}
esac
"#
    )
}

#[test]
fn a_chain_scaffolds_in_turn() {
    let scene = Scene::new();
    let stderr =
        scene.done("init --domain testproject.org --plugins rust/v1,greet.example.com/v1 --greeting Hello --loud");
    assert!(stderr.contains("Called plugin greet.example.com/v1: 2 files"), "{stderr}");
    assert_eq!(scene.project.read("GREETING"), "Ahoy\n");
    assert_eq!(scene.project.read("docs/crew/README"), "Crew\n");
    let project = scene.project.read("PROJECT");
    assert!(project.contains("layout:\n- rust.kubewright.dev/v1\n- greet.example.com/v1\n"), "{project}");
    let asked = scene.asked("init");
    assert_eq!(asked["apiVersion"], "v1alpha1");
    assert_eq!(asked["args"], json!(["--domain", "testproject.org", "--greeting", "Hello", "--loud"]));
    assert_eq!(asked["pluginChain"], json!(["rust.kubewright.dev/v1", "greet.example.com/v1"]));
    assert_eq!(asked.get("config"), None, "there is no PROJECT yet");
    assert_eq!(asked["universe"]["src/main.rs"], *scene.project.read("src/main.rs"));

    // From now on, PROJECT names the plugins.
    fs::write(scene.project.path().join("picture.png"), b"\x89PNG\xff").unwrap();
    scene.project.write("target/debug/ship", "x");
    scene.project.write(".git/HEAD", "ref");
    let stderr = scene.done("create api --group crew --version v1 --kind Captain --masts 3");
    assert!(stderr.contains("on the way to port") && stderr.contains("greet.example.com/v1: 1 files"), "{stderr}");
    assert_eq!(scene.project.read("GREETING"), "Ahoy again\n");
    let asked = scene.asked("create api");
    assert_eq!(asked["args"], json!(["--group", "crew", "--version", "v1", "--kind", "Captain", "--masts", "3"]));
    assert_eq!(asked["config"]["domain"], "testproject.org");
    assert_eq!(asked["config"]["version"], "3");
    assert_eq!(asked["config"]["resources"][0]["kind"], "Captain", "the plugin receives the updated PROJECT");
    let universe = asked["universe"].as_object().unwrap();
    assert!(universe.contains_key("src/api/v1/captain.rs") && universe["GREETING"] == "Ahoy\n");
    for hidden in ["picture.png", "target/debug/ship", ".git/HEAD"] {
        assert!(!universe.contains_key(hidden), "{hidden}");
    }

    fs::remove_file(scene.project.path().join("picture.png")).unwrap();
    let before = scene.project.read("PROJECT");
    let stderr = scene.done("edit --plugins greet.example.com/v1");
    assert!(stderr.contains("warning: plugin greet.example.com/v1 may not change PROJECT"), "{stderr}");
    assert_eq!((scene.project.read("edited").as_str(), scene.project.read("PROJECT")), ("yes\n", before));
    scene.refused(
        "create webhook --group crew --version v1 --kind Captain --defaulting",
        &["plugin greet.example.com/v1", "the plugin failed: not this one"],
    );
}

#[test]
fn a_project_may_be_anothers() {
    let scene = Scene::new();
    scene.done("init --plugins greet.example.com/v1");
    let files: Vec<_> = scene.project.all().into_keys().filter(|path| !path.ends_with('/')).collect();
    assert_eq!(files, ["GREETING", "PROJECT", "docs/crew/README"]);
    scene.done("create api --group crew --version v1 --kind Captain");
    assert_eq!(scene.project.read("GREETING"), "Ahoy again\n");
    assert!(!scene.project.read("PROJECT").contains("Captain"), "kinds are noted by those who scaffold them");
    scene.refused(
        "create api --group crew --version v1 --kind Captain --plugins rust/v1",
        &["has the layout greet.example.com/v1", "use the tool that created the project"],
    );
    fs::remove_dir_all(scene.plugins.path().join("greet.example.com")).unwrap();
    scene.refused(
        "create api --group crew --version v1 --kind Cook",
        &["use the tool that created the project", "plugin greet.example.com/v1 not found", "; install it"],
    );
}

#[test]
fn plugins_add_flags_and_help() {
    let scene = Scene::new();
    let init = "init --plugins greet.example.com/v1";
    scene.refused(&format!("{init} --greting Hello"), &["--greting", "--greeting"]);
    scene.refused("init --greeting Hello", &["--greeting"]);
    let help = String::from_utf8(scene.run(&format!("{init} --help")).stdout).unwrap();
    for words in [
        "--greeting <STRING>",
        "What to say. (plugin greet.example.com/v1) [default: Ahoy]",
        "Greets whoever comes.",
        "--domain",
    ] {
        assert!(help.contains(words), "{words:?} is not in {help}");
    }
    let asked = |command| scene.asked(command)["args"].clone();
    assert_eq!((asked("flags"), asked("metadata")), (json!(["--init"]), json!(["--init"])));
    scene.done("init --plugins=rust/v1,greet.example.com/v1 --loud=false");
    scene.refused("create api --group crew --version v1 --kind Captain --masts many", &["--masts", "many"]);
    assert_eq!(asked("flags"), json!(["--api"]));

    // A plugin that cannot list its flags receives all of them.
    let scene = Scene::new();
    let cases = "'\"command\":\"init\"'*) echo '{}' ;;\n*) exit 3 ;;";
    scene.plugin("plain/v1", "plain", &answers(cases));
    scene.done("init --plugins plain/v1 --sail --masts 3");
    assert_eq!(scene.asked("init")["args"], json!(["--sail", "--masts", "3"]));
}

#[test]
fn missing_plugins_are_an_error() {
    let scene = Scene::new();
    scene.refused("init --plugins greet", &["the plugin \"greet\"", "greet.example.com/v1"]);
    scene.refused("init --plugins ../greet/v1", &["a lower-case name and a version"]);
    scene.refused(
        "init --plugins greet/v1",
        &["plugin greet/v1 not found", "greet/v1/greet", "use one of greet.example.com/v1"],
    );
    scene.refused("init --plugins go/v4", &["plugin go/v4 not found"]);
    let program = scene.plugin("lame/v1", "lame", "");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    scene.refused("init --plugins lame/v1", &["chmod +x", "lame/v1/lame"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewright"));
    command.args(["init", "--plugins", "greet/v1"]).current_dir(scene.project.path());
    let output = command.env("EXTERNAL_PLUGINS_PATH", "/nowhere/plugins").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("find /nowhere/plugins, the directory in EXTERNAL_PLUGINS_PATH"), "{stderr}");
    // Without the variable, plugins are found in kubebuilder's directory.
    let settings = tempfile::tempdir().unwrap();
    fs::create_dir_all(settings.path().join("kubebuilder")).unwrap();
    std::os::unix::fs::symlink(scene.plugins.path(), settings.path().join("kubebuilder/plugins")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewright"));
    command.args(["init", "--plugins", "greet.example.com/v1"]).current_dir(scene.project.path());
    let output = command.env_remove("EXTERNAL_PLUGINS_PATH").env("XDG_CONFIG_HOME", settings.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn invalid_responses_change_nothing() {
    let scene = Scene::new();
    scene.project.run("init");
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), scene.project.path().join("out")).unwrap();
    fs::write(scene.project.path().join("picture.png"), b"\x89PNG\xff").unwrap();
    // All files except the binary one and the link.
    let texts = |scene: &Scene| {
        let [picture, out] = ["picture.png", "out"].map(|name| scene.project.path().join(name));
        let (data, target) = (fs::read(&picture).unwrap(), fs::read_link(&out).unwrap());
        fs::remove_file(&picture).unwrap();
        fs::remove_file(&out).unwrap();
        let all = scene.project.all();
        fs::write(picture, data).unwrap();
        std::os::unix::fs::symlink(target, out).unwrap();
        all
    };
    let answer = |text: &str| format!("cat > /dev/null\ncat <<'END'\n{text}\nEND\n");
    let files = |path: &str| answer(&json!({"universe": {"fine": "", path: "x"}}).to_string());
    for (script, says) in [
        (answer("Hello!"), "printed \"Hello!\""),
        (answer(""), "printed nothing"),
        ("exec 0<&-\n".to_owned(), "printed nothing"),
        ("cat > /dev/null\necho '{}'\nexit 3\n".to_owned(), "exit status: 3"),
        ("kill -9 $$\n".to_owned(), "signal: 9"),
        (answer(r#"{"error":true,"errorMsgs":["no wind","no crew"]}"#), "the plugin failed: no wind\nno crew"),
        (answer(r#"{"error":true}"#), "gave no reason"),
        ("cat > /dev/null\nprintf '\\377'\n".to_owned(), "is not UTF-8"),
        ("head -c 68000000 /dev/zero | tr '\\0' ' '\n".to_owned(), "longer than 64 MiB"),
        (files("../escaped"), "is not a path in the project"),
        (files("/etc/escaped"), "is not a path in the project"),
        (files("src/../../escaped"), "is not a path in the project"),
        (files("out/escaped"), "leads out of the project by a symbolic link"),
        (files(".git/hooks/pre-commit"), "belongs to git"),
        (files("src"), "cannot read src"),
        (files("picture.png"), "cannot read picture.png"),
    ] {
        scene.plugin("odd/v1", "odd", &script);
        let before = texts(&scene);
        let output = scene.run("edit --plugins odd/v1");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && stderr.contains("error: "), "{says}: {stderr}");
        assert!(stderr.contains(says), "{says:?} is not in {stderr}");
        assert!(texts(&scene) == before, "{says}");
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    // A plugin may respond without reading the request.
    scene.plugin("odd/v1", "odd", "exec 0<&-\necho '{\"universe\":{\"heard\":\"yes\"}}'\n");
    scene.done("edit --plugins odd/v1");
    assert_eq!(scene.project.read("heard"), "yes");
}
