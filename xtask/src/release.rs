//! `cargo xtask release`: packages the crates that users need, in the order of their dependencies, from a clean clone, and checks that a
//! project is made and tested with nothing but these packages.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{
    root,
    steps::{self, Steps, cargo},
};

/// Where clone, packages and project are kept: outside of the repository, whose workspace they aren't part of. What is compiled
/// stays below `target`.
const BUILD: &str = "target/release-check";

/// The crates that are published: those below `crates` that don't say `publish`. In the order of their names.
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

/// The text of a key of the manifest.
fn value(manifest: &str, key: &str) -> Option<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='))?;
    Some(line.trim().trim_matches('"').to_owned())
}

/// Runs the steps of a release; without `dry_run` the last one publishes.
pub(crate) fn run(steps: &mut Steps, dry_run: bool) {
    let folder = std::env::temp_dir().join(format!("kubewright-release-{}", std::process::id()));
    let clone = folder.join("clone");
    if steps.check("clean clone", || clone_into(&clone)) && steps.check("packages", || package(&clone)) {
        steps.check("a project made of the packages", || try_packages(&folder, &clone));
    }
    checks(steps);
    if dry_run {
        steps.skip("publishing", "this is a dry run");
    } else if steps.all_passed() {
        steps.check("publishing", || in_clone(&clone, &["publish"]));
    } else {
        steps.skip("publishing", "a step before it failed");
    }
    let _ = fs::remove_dir_all(folder);
}

/// The checks by programs that are only run where they are installed.
fn checks(steps: &mut Steps) {
    if installed("deny") {
        steps.run("licences, bans and sources", cargo(&["deny", "check", "bans", "licenses", "sources"]));
        steps.run("advisories", cargo(&["deny", "check", "advisories"]));
    } else {
        steps.skip("licences, bans, sources and advisories", "cargo-deny is not installed (cargo install cargo-deny)");
    }
    let published = "no version is published yet, so there is none to compare with";
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

/// The newest tag of a released version.
fn released() -> Result<Option<String>> {
    let output = Command::new("git").args(["tag", "--list", "v*", "--sort", "-version:refname"]).output();
    let output = output.context("start git")?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned))
}

/// Clones what is committed.
fn clone_into(clone: &Path) -> Result<()> {
    let status = Command::new("git").args(["status", "--porcelain"]).output().context("start git")?;
    if !status.stdout.is_empty() {
        eprintln!("    there are changes that aren't committed: they are no part of the packages");
    }
    steps::run(Command::new("git").args(["clone", "--quiet", "--local"]).arg(root()).arg(clone))
}

/// `cargo package`, which also compiles each package by itself.
fn package(clone: &Path) -> Result<()> {
    in_clone(clone, &["package"])
}

fn in_clone(clone: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = cargo(arguments);
    command.arg("--locked").args(packages()?.iter().flat_map(|package| ["--package", package]));
    steps::run(command.current_dir(clone).env("CARGO_TARGET_DIR", root().join(BUILD)))
}

/// Makes a project with the packaged command line, without `--sdk`, and tests it. Cargo is given a source that holds the packages, and
/// what they depend on as it is locked, so that the project gets what its users will.
fn try_packages(folder: &Path, clone: &Path) -> Result<()> {
    let source = folder.join("source");
    let mut vendor = cargo(&["vendor", "--quiet", "--locked", "--versioned-dirs"]);
    // It prints how to use the folder, which is done below.
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
    let build = root().join(BUILD);
    // By its folder: `cargo install` by name doesn't look into such a source.
    let cli = source.join(format!("kubewright-cli-{}", version(clone)?));
    let mut install = cargo(&["install", "--quiet", "--debug", "--offline", "--path"]);
    install.arg(cli).arg("--root").arg(&tools);
    steps::run(install.current_dir(folder).env("CARGO_TARGET_DIR", &build))?;
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
    steps::run(test.current_dir(&project).env("CARGO_TARGET_DIR", &build))?;
    let lock = project.join("Cargo.lock");
    let lock = fs::read_to_string(&lock).with_context(|| format!("read {}", lock.display()))?;
    let from_registry = "name = \"kubewright\"\nversion = \"0.1.0\"\nsource = \"registry+";
    if !lock.contains(from_registry) {
        bail!("the project doesn't take kubewright from the registry");
    }
    Ok(())
}

/// The SHA-256 of a file in hexadecimal, by coreutils.
fn sha256(file: &Path) -> Result<String> {
    let output = Command::new("sha256sum").arg(file).output().context("start sha256sum")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let sum = text.split_whitespace().next().filter(|sum| output.status.success() && sum.len() == 64);
    sum.map(str::to_owned).with_context(|| format!("sha256sum of {} failed", file.display()))
}

/// The version of the workspace.
fn version(clone: &Path) -> Result<String> {
    let manifest: PathBuf = clone.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).with_context(|| format!("read {}", manifest.display()))?;
    value(&text, "version").context("the workspace has no version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_need_is_published_and_nothing_else() {
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
