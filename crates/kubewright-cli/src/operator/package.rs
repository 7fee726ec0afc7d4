//! The crate of an operator, as cargo knows it.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The crate in a folder, and the program of it that is the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    /// The folder of the crate: the project.
    pub(crate) folder: PathBuf,
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// The name of the program.
    pub(crate) program: String,
    /// The root of its workspace, which may be the same folder.
    pub(crate) root: PathBuf,
    /// Where cargo builds.
    pub(crate) target: PathBuf,
}

/// What `cargo metadata` says, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Listed>,
    target_directory: PathBuf,
    workspace_root: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Listed {
    name: String,
    version: String,
    manifest_path: PathBuf,
    default_run: Option<String>,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

impl Package {
    /// The crate that `start` is in; `program` says which of its programs is meant.
    pub(crate) fn find(start: &Path, program: Option<&str>) -> Result<Self> {
        let folder = start.ancestors().find(|folder| folder.join("Cargo.toml").exists()).with_context(|| {
            format!(
                "{} is in no project: there is no Cargo.toml here or above. Begin one with kubewright init",
                start.display()
            )
        })?;
        let manifest = folder.join("Cargo.toml");
        // It needs no network and no lock file, and takes some 50 ms.
        let output = cargo(folder)
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
            .arg(&manifest)
            .stdin(Stdio::null())
            .output()
            .context("start cargo, which kubewright needs: see https://rustup.rs")?;
        if !output.status.success() {
            bail!("cargo can't read {}:\n{}", manifest.display(), String::from_utf8_lossy(&output.stderr).trim_end());
        }
        let metadata: Metadata = serde_json::from_slice(&output.stdout).context("understand cargo metadata")?;
        Self::of(metadata, folder, program)
    }

    /// All that cargo knows of the crate's dependencies for a target, as it says it. Without a target it is for all.
    pub(crate) fn dependencies(&self, target: Option<&str>) -> Result<Vec<u8>> {
        let mut command = cargo(&self.folder);
        command.args(["metadata", "--format-version", "1", "--manifest-path"]).arg(self.folder.join("Cargo.toml"));
        command.args(target.into_iter().flat_map(|target| ["--filter-platform", target]));
        let output = command.stdin(Stdio::null()).output().context("start cargo")?;
        if !output.status.success() {
            bail!("cargo can't tell the dependencies:\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
        }
        Ok(output.stdout)
    }

    fn of(metadata: Metadata, folder: &Path, program: Option<&str>) -> Result<Self> {
        let manifest = folder.join("Cargo.toml");
        let same = |path: &Path| path == manifest || path.canonicalize().ok() == manifest.canonicalize().ok();
        let Some(package) = metadata.packages.iter().find(|package| same(&package.manifest_path)) else {
            bail!("{} is a workspace, no operator: change to the folder of one of its crates", folder.display());
        };
        Ok(Self {
            folder: folder.to_owned(),
            name: package.name.clone(),
            version: package.version.clone(),
            program: package.program(program)?,
            root: metadata.workspace_root,
            target: metadata.target_directory,
        })
    }
}

impl Listed {
    /// The one that was asked for, or that `cargo run` would take, or that has the name of the crate.
    fn program(&self, wanted: Option<&str>) -> Result<String> {
        let is_program = |target: &&Target| target.kind.iter().any(|kind| kind == "bin");
        let names: Vec<_> = self.targets.iter().filter(is_program).map(|target| target.name.as_str()).collect();
        let has = |name: &str| names.contains(&name).then(|| name.to_owned());
        if let Some(wanted) = wanted {
            let others = names.join(", ");
            return has(wanted).with_context(|| format!("{} has no program {wanted}: it has {others}", self.name));
        }
        let usual = || self.default_run.as_deref().and_then(has).or_else(|| has(&self.name));
        match names.as_slice() {
            [] => bail!("{} has no program, and so no operator: add src/main.rs", self.name),
            [only] => Ok((*only).to_owned()),
            several => usual().with_context(|| {
                format!(
                    "{} has several programs: say with --bin which is the operator: {}",
                    self.name,
                    several.join(", ")
                )
            }),
        }
    }
}

/// The cargo that runs us, if one does.
pub(super) fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What a cargo that runs us tells of its package is none of this one's business: build scripts that look at it (ring's does) would run
    // again, and all that is built on them would be built again, each time that it was another cargo.
    let told = std::env::vars_os().map(|(name, _)| name);
    let is_of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for name in told.filter(|name| name.to_str().is_some_and(is_of_package)) {
        command.env_remove(name);
    }
    command.current_dir(folder);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(default_run: Option<&str>, programs: &[&str], wanted: Option<&str>) -> Result<String, String> {
        let target = |name: &&str| Target { name: (*name).into(), kind: vec!["bin".into()] };
        let mut targets: Vec<_> = programs.iter().map(target).collect();
        targets.push(Target { name: "page".into(), kind: vec!["lib".into()] });
        let listed = Listed {
            name: "cow".into(),
            version: "0.1.0".into(),
            manifest_path: PathBuf::new(),
            default_run: default_run.map(Into::into),
            targets,
        };
        listed.program(wanted).map_err(|error| error.to_string())
    }

    #[test]
    fn the_operator_is_the_usual_program() {
        assert_eq!(program(None, &["only"], None).as_deref(), Ok("only"));
        assert_eq!(program(None, &["page", "cow"], None).as_deref(), Ok("cow"));
        assert_eq!(program(Some("page"), &["page", "cow"], None).as_deref(), Ok("page"));
        assert_eq!(program(None, &["page", "cow"], Some("page")).as_deref(), Ok("page"));
    }

    #[test]
    fn what_is_unclear_is_asked_for() {
        assert!(program(None, &[], None).unwrap_err().contains("add src/main.rs"));
        assert!(program(None, &["a", "b"], None).unwrap_err().ends_with("which is the operator: a, b"));
        assert_eq!(program(None, &["a", "b"], Some("c")).unwrap_err(), "cow has no program c: it has a, b");
    }

    #[test]
    fn a_folder_without_a_project_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let error = Package::find(folder.path(), None).unwrap_err().to_string();
        assert!(error.ends_with("Begin one with kubewright init"), "{error}");
    }
}
