//! `cargo xtask release`: packages the published crates from a clean clone, in the order of their dependencies, and
//! tests a project that is made of nothing but these packages.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{
    root,
    steps::{self, Steps, cargo},
};

/// The directory of all packages and programs. The clone, the packages and the project are outside of the repository,
/// since they aren't part of its workspace.
const BUILD: &str = "target/release-check";
/// The directory of intermediate artifacts. It is that of the workspace, so that dependencies with the same features
/// are compiled once.
const INTERMEDIATE: &str = "target";

/// Returns the published crates, in the order of their names: those below `crates` without `publish` in the manifest.
pub(crate) fn packages() -> Result<Vec<String>> {
    let mut packages = Vec::new();
    let crates = root().join("crates");
    for entry in fs::read_dir(&crates).with_context(|| format!("read {}", crates.display()))? {
        let manifest = entry?.path().join("Cargo.toml");
        let text = fs::read_to_string(&manifest).with_context(|| format!("read {}", manifest.display()))?;
        if !text.lines().any(|line| line.starts_with("publish")) {
            packages.push(value(&text, "name").with_context(|| format!("{} has no name", manifest.display()))?);
        }
    }
    packages.sort();
    Ok(packages)
}

/// Returns the text of a key of the manifest.
fn value(manifest: &str, key: &str) -> Option<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='))?;
    Some(line.trim().trim_matches('"').to_owned())
}

/// How much of a release is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Extent {
    /// The packages are made, and a project that depends on all of them is tested.
    Project,
    /// In addition, each package is compiled separately, which takes eight minutes.
    DryRun,
    /// In addition, the packages are published.
    Publish,
}

/// Runs the steps of a release.
pub(crate) fn run(steps: &mut Steps, extent: Extent) {
    let folder = env::temp_dir().join(format!("kubewright-release-{}", std::process::id()));
    let clone = folder.join("clone");
    if steps.check("clean clone", || clone_into(&clone)) && steps.check("packages", || package(&clone, extent)) {
        steps.check("a project made of the packages", || try_packages(&folder, &clone));
    }
    checks(steps);
    if extent != Extent::Publish {
        steps.skip("publishing", "this is a dry run");
    } else if steps.all_passed() {
        steps.check("publishing", || in_clone(&clone, &["publish"]));
    } else {
        steps.skip("publishing", "an earlier step failed");
    }
    let _ = fs::remove_dir_all(folder);
}

/// Runs the checks by programs that may not be installed.
fn checks(steps: &mut Steps) {
    if installed("deny") {
        steps.run("licences, bans and sources", cargo(&["deny", "check", "bans", "licenses", "sources"]));
        if steps::run(&mut cargo(&["deny", "fetch", "db"])).is_ok() {
            steps.run("advisories", cargo(&["deny", "check", "advisories"]));
        } else {
            steps.skip("advisories", "the database of advisories can't be fetched");
        }
    } else {
        steps.skip("licences, bans, sources and advisories", "cargo-deny is not installed (cargo install cargo-deny)");
    }
    let published = "no version is published yet";
    let name = "compatible with the published version";
    match (released(), installed("semver-checks")) {
        (Ok(None), _) => steps.skip(name, published),
        (_, false) => steps.skip(name, "cargo-semver-checks is not installed (cargo install cargo-semver-checks)"),
        (Ok(Some(tag)), true) => {
            steps.run(name, cargo(&["semver-checks", "--workspace", "--baseline-rev", &tag]));
        }
        (Err(error), true) => drop(steps.check(name, || Err(error))),
    }
}

fn installed(subcommand: &str) -> bool {
    cargo(&[subcommand, "--version"]).output().is_ok_and(|output| output.status.success())
}

/// Returns the newest tag of a released version.
fn released() -> Result<Option<String>> {
    let output = Command::new("git").args(["tag", "--list", "v*", "--sort", "-version:refname"]).output();
    let output = output.context("start git")?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned))
}

/// Clones the committed state.
fn clone_into(clone: &Path) -> Result<()> {
    let status = Command::new("git").args(["status", "--porcelain"]).output().context("start git")?;
    if !status.stdout.is_empty() {
        eprintln!("    uncommitted changes are not part of the packages");
    }
    steps::run(Command::new("git").args(["clone", "--quiet", "--local"]).arg(root()).arg(clone))
}

/// Runs `cargo package`, which also compiles each package separately unless only the project is wanted.
fn package(clone: &Path, extent: Extent) -> Result<()> {
    let version = version(clone)?;
    let packages = packages()?.into_iter().map(|package| format!("{package}-{version}")).collect::<Vec<_>>();
    forget(&packages)?;
    in_clone(clone, if extent == Extent::Project { &["package", "--no-verify"] } else { &["package"] })
}

/// Removes what cargo keeps of earlier packages. It takes a version in a registry for immutable, also in the registry
/// of new packages against which they are compiled: sources that were unpacked once would be used again, and so would
/// what was compiled of them.
fn forget(packages: &[String]) -> Result<()> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let sources = home.context("there is no home directory: set CARGO_HOME")?.join("registry/src");
    // The name of a registry without a host begins with a dash.
    for registry in entries(&sources)?.filter(|path| begins_with(path, "-")) {
        for package in packages {
            remove(&registry.join(package))?;
        }
    }
    // What was compiled of packages has its sources in one of these folders.
    let folders = ["/kubewright-release-", &format!("/{BUILD}/"), "/registry/src/-"];
    let build = root().join(INTERMEDIATE).join("debug");
    let lists =
        entries(&build.join("deps"))?.filter(|path| begins_with(path, "kubewright") && has_extension(path, "d"));
    for list in lists {
        let sources = fs::read_to_string(&list).with_context(|| format!("read {}", list.display()))?;
        if folders.iter().any(|folder| sources.contains(folder)) {
            let name = list.file_stem().unwrap_or_default().to_string_lossy().replace('_', "-");
            remove(&build.join(".fingerprint").join(name))?;
        }
    }
    Ok(())
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|it| it == extension)
}

fn begins_with(path: &Path, start: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
}

/// Returns the entries of a directory, which may be missing.
fn entries(directory: &Path) -> Result<impl Iterator<Item = PathBuf> + use<>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries.collect::<Result<Vec<_>, _>>(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    let entries = entries.with_context(|| format!("read {}", directory.display()))?;
    Ok(entries.into_iter().map(|entry| entry.path()))
}

/// Removes a directory, which may be missing.
fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

fn in_clone(clone: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = cargo(arguments);
    command.arg("--locked").args(packages()?.iter().flat_map(|package| ["--package", package]));
    steps::run(building(&mut command).current_dir(clone))
}

/// Makes cargo build in the directories of this chore, with the debug and strip settings of the workspace's
/// dependencies. With others, the dependencies would be compiled again.
fn building(command: &mut Command) -> &mut Command {
    command.env("CARGO_TARGET_DIR", root().join(BUILD)).env("CARGO_BUILD_BUILD_DIR", root().join(INTERMEDIATE));
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_PROFILE_DEV_STRIP", "none")
}

/// Creates a project with the packaged command line, without `--sdk`, and tests it. Cargo's source contains the
/// packages and their locked dependencies, so that the project is compiled as by its users.
fn try_packages(folder: &Path, clone: &Path) -> Result<()> {
    let source = folder.join("source");
    let mut vendor = cargo(&["vendor", "--quiet", "--locked", "--versioned-dirs"]);
    // It prints a configuration for the folder, which is written below.
    steps::run(vendor.arg(&source).current_dir(clone).stdout(std::process::Stdio::null()))?;
    for package in packages()? {
        let name = format!("{package}-{}", version(clone)?);
        let archive = root().join(BUILD).join(format!("package/{name}.crate"));
        steps::run(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&source))?;
        let checksums = source.join(&name).join(".cargo-checksum.json");
        let sums = format!(r#"{{"files":{{}},"package":"{}"}}"#, sha256(&archive)?);
        fs::write(&checksums, sums).with_context(|| format!("write {}", checksums.display()))?;
    }
    // Cargo reads this for all projects below.
    let config = format!(
        "[source.crates-io]\nreplace-with = \"packages\"\n[source.packages]\ndirectory = {:?}\n[net]\noffline = true\n",
        source.display().to_string()
    );
    fs::create_dir_all(folder.join(".cargo")).context("create a folder for cargo's configuration")?;
    fs::write(folder.join(".cargo/config.toml"), config).context("write cargo's configuration")?;
    let tools = folder.join("tools");
    // By its folder, since `cargo install` by name doesn't read such a source.
    let cli = source.join(format!("kubewright-cli-{}", version(clone)?));
    let mut install = cargo(&["install", "--quiet", "--debug", "--offline", "--path"]);
    install.arg(cli).arg("--root").arg(&tools);
    steps::run(building(&mut install).current_dir(folder))?;
    let project = folder.join("shop");
    fs::create_dir_all(&project).context("create the project's folder")?;
    let kubewright = |line: &str| {
        let mut command = Command::new(tools.join("bin/kubewright"));
        steps::run(command.args(line.split(' ')).current_dir(&project))
    };
    kubewright("init --domain example.com")?;
    kubewright("create api --group shop --version v1 --kind Order")?;
    kubewright("create webhook --group shop --version v1 --kind Order --defaulting --programmatic-validation")?;
    let mut test = cargo(&["test", "--quiet"]);
    steps::run(building(&mut test).current_dir(&project))?;
    let lock = project.join("Cargo.lock");
    let lock = fs::read_to_string(&lock).with_context(|| format!("read {}", lock.display()))?;
    let from_registry = format!("name = \"kubewright\"\nversion = \"{}\"\nsource = \"registry+", version(clone)?);
    if !lock.contains(&from_registry) {
        bail!("the project's kubewright is not from the registry");
    }
    Ok(())
}

/// Returns the SHA-256 of a file in hexadecimal, by coreutils.
fn sha256(file: &Path) -> Result<String> {
    let output = Command::new("sha256sum").arg(file).output().context("start sha256sum")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let sum = text.split_whitespace().next().filter(|sum| output.status.success() && sum.len() == 64);
    sum.map(str::to_owned).with_context(|| format!("sha256sum of {} failed", file.display()))
}

/// Returns the version of the workspace.
fn version(clone: &Path) -> Result<String> {
    let manifest: PathBuf = clone.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).with_context(|| format!("read {}", manifest.display()))?;
    value(&text, "version").context("the workspace has no version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_crates_for_users_are_published() {
        let packages = packages().unwrap();
        for name in ["kubewright", "kubewright-cli", "kubewright-cluster", "kubewright-macros", "kubewright-runtime"] {
            assert!(packages.iter().any(|package| package == name), "{name}");
        }
        assert!(!packages.contains(&"kubewright-browser".to_owned()));
    }

    #[test]
    fn every_package_describes_itself() {
        for package in packages().unwrap() {
            let folder = root().join("crates").join(&package);
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            for key in ["description", "documentation", "readme", "keywords", "categories", "license.workspace"] {
                assert!(value(&manifest, key).is_some_and(|value| !value.is_empty()), "{package} has no {key}");
            }
            let description = value(&manifest, "description").unwrap();
            assert!(description.len() <= 120 && !description.ends_with('.'), "{package}: {description}");
            // The limits of crates.io.
            let keywords = value(&manifest, "keywords").unwrap();
            let keywords = keywords.split('"').skip(1).step_by(2).collect::<Vec<_>>();
            assert!(
                keywords.len() <= 5 && keywords.iter().all(|keyword| keyword.len() <= 20),
                "{package}: {keywords:?}"
            );
            for file in ["README.md", "LICENSE"] {
                assert!(folder.join(file).is_file(), "{package} has no {file}");
            }
        }
    }

    /// A dependency without a version can't be published. Those for tests alone are left out of packages.
    #[test]
    fn packages_depend_on_packages_by_version() {
        let packages = packages().unwrap();
        let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
        for package in &packages {
            let line = workspace.lines().find(|line| line.starts_with(&format!("{package} = ")));
            if let Some(line) = line {
                assert!(line.contains("version = "), "{line}");
            }
            let manifest = fs::read_to_string(root().join("crates").join(package).join("Cargo.toml")).unwrap();
            let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
            let section = section.split("\n[").next().unwrap_or_default();
            for ours in section.lines().filter_map(|line| line.split(['.', ' ', '=']).next()) {
                let is_ours = ours.starts_with("kubewright") || ours.ends_with("-operator");
                assert!(!is_ours || packages.iter().any(|package| package == ours), "{package} needs {ours}");
            }
        }
    }
}
