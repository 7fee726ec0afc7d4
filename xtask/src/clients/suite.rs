//! The suites: the tools that each needs, its installation below `target/clients`, and its run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result};

use super::{FOLDER, TestedCluster, install, logged};
use crate::root;

/// The maximum duration of a suite, in the syntax of `timeout`.
const LONGEST: &str = "5m";

/// A test program of one language.
pub(super) struct Suite {
    pub(super) name: &'static str,
    /// The clients that it tests.
    pub(super) clients: &'static [&'static str],
    /// The commands that show whether its tools are there.
    tools: &'static [&'static [&'static str]],
    /// Installs the clients: from its folder, into another, with a log.
    install: fn(&Path, &Path, &Path) -> Result<()>,
    /// Returns the commands that run it: in its folder, with what is installed in another.
    commands: fn(&Path, &Path) -> Vec<Command>,
}

/// All suites. kubectl and helm are built from the sources of their Go modules.
pub(super) const SUITES: &[Suite] = &[
    Suite {
        name: "python",
        clients: &["python"],
        tools: &[&["python3", "-c", "import ensurepip, venv"]],
        install: install_python,
        commands: |from, to| {
            let mut pytest = Command::new(to.join("venv/bin/python"));
            pytest.args(["-m", "pytest", "--capture=no", "--tb=short", "-p", "no:cacheprovider"]).current_dir(from);
            pytest.env("PYTHONDONTWRITEBYTECODE", "1");
            vec![pytest]
        },
    },
    Suite {
        name: "javascript",
        clients: &["javascript"],
        tools: &[&["node", "--version"], &["npm", "--version"]],
        install: install_javascript,
        commands: |_, to| {
            let run = |file: &str| {
                let mut node = Command::new("node");
                node.args(["--test-reporter=spec", file]).current_dir(to);
                node
            };
            vec![run("client.test.mjs"), run("example.test.mjs")]
        },
    },
    Suite {
        name: "java",
        clients: &["client-java", "fabric8"],
        tools: &[&["javac", "-version"], &["mvn", "--version"]],
        install: |from, to, log| install(maven(from, to).args(["--quiet", "test-compile"]), log),
        commands: |from, to| {
            // Not offline: the runner of the tests is only downloaded now.
            let mut test = maven(from, to);
            test.arg("test");
            vec![test]
        },
    },
    Suite {
        name: "go",
        clients: &["go"],
        tools: &[&["go", "version"]],
        install: install_go,
        commands: |from, to| {
            let mut test = Command::new(to.join("clients.test"));
            test.args(["-test.v", "-test.timeout=4m"]).current_dir(from);
            vec![test]
        },
    },
    Suite {
        name: "envtest",
        clients: &["envtest"],
        tools: &[&["go", "version"]],
        install: install_envtest,
        commands: |from, to| {
            let programs = to.join("programs");
            let mut write = Command::new("kubewright");
            write.arg("envtest").arg(&programs);
            let mut test = Command::new(to.join("envtest.test"));
            test.args(["-test.v", "-test.timeout=4m"]).current_dir(from.join("internal/controller"));
            test.env("KUBEBUILDER_ASSETS", programs);
            vec![write, test]
        },
    },
    Suite {
        name: "kubectl",
        clients: &["kubectl"],
        tools: &[&["go", "version"]],
        install: install_commands,
        commands: |_, _| vec![script("kubectl.sh")],
    },
    Suite {
        name: "helm",
        clients: &["helm"],
        tools: &[&["go", "version"]],
        install: install_commands,
        commands: |_, _| vec![script("helm.sh")],
    },
];

impl Suite {
    /// Returns the first tool that isn't on the machine.
    pub(super) fn missing(&self) -> Option<&'static str> {
        let runs = |line: &&&[&str]| {
            let mut command = Command::new(line[0]);
            let status =
                command.args(&line[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        self.tools.iter().find(|line| !runs(line)).map(|line| line[0])
    }

    /// Installs the clients. `from` contains the folders of the suites, `to` what is installed.
    pub(super) fn install(&self, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (from.join(self.name), to.join(self.name));
        fs::create_dir_all(&to).with_context(|| format!("create {}", to.display()))?;
        let log = to.join("install.log");
        fs::write(&log, "").with_context(|| format!("write {}", log.display()))?;
        (self.install)(&from, &to, &log)
    }

    /// Runs the suite, with its output in a log. Returns the status of the first command that failed.
    pub(super) fn run(&self, cluster: &TestedCluster, log: &Path) -> Result<ExitStatus> {
        fs::write(log, "").with_context(|| format!("write {}", log.display()))?;
        let from = root().join(FOLDER).join(self.name);
        let to = root().join(super::BUILD).join(self.name);
        let mut result = ExitStatus::default();
        for command in (self.commands)(&from, &to) {
            let mut limited = within(&command);
            cluster.environment(self.name, &mut limited)?;
            let status = logged(&mut limited, log)?;
            if result.success() {
                result = status;
            }
        }
        Ok(result)
    }
}

/// Returns a command with a time limit.
fn within(command: &Command) -> Command {
    let mut limited = Command::new("timeout");
    limited.arg("--kill-after=5").arg(LONGEST).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            limited.env(name, value);
        }
    }
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    limited
}

/// Creates a virtual environment with the pinned requirements, unless there is one.
fn install_python(from: &Path, to: &Path, log: &Path) -> Result<()> {
    let (requirements, installed) = (from.join("requirements.txt"), to.join("requirements.txt"));
    if fs::read(&requirements).ok().is_some_and(|wanted| fs::read(&installed).ok() == Some(wanted)) {
        return Ok(());
    }
    install(Command::new("python3").args(["-m", "venv", "--clear"]).arg(to.join("venv")), log)?;
    let mut pip = Command::new(to.join("venv/bin/pip"));
    install(pip.args(["install", "--quiet", "--disable-pip-version-check", "-r"]).arg(&requirements), log)?;
    copy(&requirements, &installed)
}

/// Copies the programs beside the installed packages, where Node looks for those.
fn install_javascript(from: &Path, to: &Path, log: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry.with_context(|| format!("read {}", from.display()))?;
        if entry.path().is_file() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    install(Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(to), log)
}

/// Builds the test program, unless it is there.
fn install_go(from: &Path, to: &Path, log: &Path) -> Result<()> {
    let program = to.join("clients.test");
    unless_built(from, &program, || install(go(from).args(["test", "-c", "-o"]).arg(&program), log))
}

/// Builds the test program of a controller, unless it is there.
fn install_envtest(from: &Path, to: &Path, log: &Path) -> Result<()> {
    let program = to.join("envtest.test");
    let build = || install(go(from).args(["test", "-c", "-o"]).arg(&program).arg("./internal/controller"), log);
    unless_built(from, &program, build)
}

/// Builds kubectl and helm, unless they are there.
fn install_commands(from: &Path, to: &Path, log: &Path) -> Result<()> {
    let (folder, programs) = (from.with_file_name("commands"), to.with_file_name("bin"));
    fs::create_dir_all(&programs).with_context(|| format!("create {}", programs.display()))?;
    let version = "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3";
    let mut build = go(&folder);
    build.args(["build", "-trimpath", "-ldflags", version, "-o"]).arg(&programs);
    build.args(["./kubectl", "helm.sh/helm/v4/cmd/helm"]);
    unless_built(&folder, &programs.join("helm"), || install(&mut build, log))
}

/// Builds a program, unless it was built from the same sources. Go's own cache may be emptied at any time, and then the
/// build takes minutes.
fn unless_built(sources: &Path, program: &Path, build: impl FnOnce() -> Result<()>) -> Result<()> {
    let (wanted, built) = (go_sources(sources)?, program.with_extension("sources"));
    if program.exists() && fs::read(&built).is_ok_and(|built| built == wanted) {
        return Ok(());
    }
    build()?;
    fs::write(&built, wanted).with_context(|| format!("write {}", built.display()))
}

/// Returns the sources of a Go module, one after another.
fn go_sources(folder: &Path) -> Result<Vec<u8>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let mut sources = Vec::new();
    for path in paths {
        if path.is_dir() {
            sources.extend(go_sources(&path)?);
        } else if path.extension().is_some_and(|extension| ["go", "mod", "sum"].iter().any(|known| extension == *known))
        {
            sources.extend(fs::read(&path).with_context(|| format!("read {}", path.display()))?);
        }
    }
    Ok(sources)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("copy {}", from.display()))?;
    Ok(())
}

fn maven(from: &Path, to: &Path) -> Command {
    let mut maven = Command::new("mvn");
    maven.args(["--batch-mode", "--no-transfer-progress"]).arg("--file").arg(from.join("pom.xml"));
    maven.arg(property("maven.repo.local", &to.join("repository")));
    maven.arg(property("clients.target", &to.join("build")));
    maven
}

fn property(name: &str, path: &Path) -> String {
    format!("-D{name}={}", path.display())
}

fn go(folder: &Path) -> Command {
    let mut go = Command::new("go");
    go.arg("-C").arg(folder);
    go
}

fn script(name: &str) -> Command {
    let path: PathBuf = root().join(FOLDER).join("commands").join(name);
    let mut bash = Command::new("bash");
    bash.arg(path);
    bash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_built_again_when_its_sources_change() {
        let folder = std::env::temp_dir().join(format!("kubewright-suite-{}", std::process::id()));
        let (sources, program) = (folder.join("sources"), folder.join("program"));
        fs::create_dir_all(sources.join("main")).unwrap();
        let mut builds = 0;
        let mut check = |expected| {
            unless_built(&sources, &program, || {
                builds += 1;
                Ok(fs::write(&program, "")?)
            })
            .unwrap();
            assert_eq!(builds, expected);
        };
        fs::write(sources.join("go.mod"), "module a").unwrap();
        check(1);
        check(1);
        fs::write(sources.join("main/main.go"), "package main").unwrap();
        check(2);
        fs::write(sources.join("README"), "not a source").unwrap();
        check(2);
        fs::remove_file(&program).unwrap();
        check(3);
        fs::remove_dir_all(&folder).unwrap();
    }
}
