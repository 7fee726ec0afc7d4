//! The package of an operator, from `cargo metadata`.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// A package, and the binary target that is the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    /// The directory of the package: the project.
    pub(crate) folder: PathBuf,
    /// The package name.
    pub(crate) name: String,
    /// The package version.
    pub(crate) version: String,
    /// The name of the binary target.
    pub(crate) program: String,
    /// The root of the workspace, which may be the same directory.
    pub(crate) root: PathBuf,
    /// Cargo's target directory.
    pub(crate) target: PathBuf,
    /// Whether the package has example targets.
    pub(crate) has_examples: bool,
    /// The names of the packages that are developed together with it: itself, and its dependencies by path.
    pub(crate) local: Vec<String>,
}

/// The fields in the output of `cargo metadata` that are used here.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    target_directory: PathBuf,
    workspace_root: PathBuf,
}

#[derive(Debug, Deserialize)]
struct MetadataPackage {
    name: String,
    version: String,
    manifest_path: PathBuf,
    default_run: Option<String>,
    targets: Vec<Target>,
    #[serde(default)]
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    path: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

impl Target {
    fn is(&self, kind: &str) -> bool {
        self.kind.iter().any(|own| own == kind)
    }
}

impl Package {
    /// Finds the package that contains `start`. `program` selects the binary target if the package has several.
    pub(crate) fn find(start: &Path, program: Option<&str>) -> Result<Self> {
        let folder = start.ancestors().find(|folder| folder.join("Cargo.toml").exists()).with_context(|| {
            format!(
                "there is no Cargo.toml in {} or a directory above it: create a project with kubewright init, or change to its directory",
                start.display()
            )
        })?;
        let manifest = folder.join("Cargo.toml");
        // This needs neither network access nor a lock file, and takes about 50 ms.
        let output = cargo(folder)
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
            .arg(&manifest)
            .stdin(Stdio::null())
            .output()
            .context("start cargo: install Rust from https://rustup.rs")?;
        if !output.status.success() {
            bail!("cargo cannot read {}:\n{}", manifest.display(), String::from_utf8_lossy(&output.stderr).trim_end());
        }
        let metadata: Metadata =
            serde_json::from_slice(&output.stdout).context("parse the output of cargo metadata")?;
        Self::of(metadata, folder, program)
    }

    /// Returns the output of `cargo metadata` with all dependencies, for one target or, with `None`, for all targets.
    pub(crate) fn dependencies(&self, target: Option<&str>) -> Result<Vec<u8>> {
        let mut command = cargo(&self.folder);
        command.args(["metadata", "--format-version", "1", "--manifest-path"]).arg(self.folder.join("Cargo.toml"));
        command.args(target.into_iter().flat_map(|target| ["--filter-platform", target]));
        let output = command.stdin(Stdio::null()).output().context("start cargo")?;
        if !output.status.success() {
            bail!(
                "cargo cannot list the dependencies of {}:\n{}",
                self.name,
                String::from_utf8_lossy(&output.stderr).trim_end()
            );
        }
        Ok(output.stdout)
    }

    fn of(metadata: Metadata, folder: &Path, program: Option<&str>) -> Result<Self> {
        let manifest = folder.join("Cargo.toml");
        let same = |path: &Path| path == manifest || path.canonicalize().ok() == manifest.canonicalize().ok();
        let Some(package) = metadata.packages.iter().find(|package| same(&package.manifest_path)) else {
            bail!(
                "{} is a workspace without a package: change to the directory of the operator's package",
                folder.display()
            );
        };
        Ok(Self {
            folder: folder.to_owned(),
            name: package.name.clone(),
            version: package.version.clone(),
            program: package.program(program)?,
            root: metadata.workspace_root,
            target: metadata.target_directory,
            has_examples: package.targets.iter().any(|target| target.is("example")),
            local: package.local(),
        })
    }
}

impl MetadataPackage {
    /// Returns the names of the package and of its dependencies by path.
    fn local(&self) -> Vec<String> {
        let dependencies = self.dependencies.iter().filter(|dependency| dependency.path.is_some());
        [&self.name].into_iter().chain(dependencies.map(|dependency| &dependency.name)).cloned().collect()
    }

    /// Returns the requested binary target, or the one that `cargo run` would run, or the one with the name of the
    /// package.
    fn program(&self, wanted: Option<&str>) -> Result<String> {
        let is_program = |target: &&Target| target.is("bin");
        let names: Vec<_> = self.targets.iter().filter(is_program).map(|target| target.name.as_str()).collect();
        let has = |name: &str| names.contains(&name).then(|| name.to_owned());
        if let Some(wanted) = wanted {
            let others = names.join(", ");
            return has(wanted).with_context(|| {
                format!("package {} has no binary target {wanted}: choose one of {others} with --bin", self.name)
            });
        }
        let usual = || self.default_run.as_deref().and_then(has).or_else(|| has(&self.name));
        match names.as_slice() {
            [] => bail!("package {} has no binary target: add src/main.rs", self.name),
            [only] => Ok((*only).to_owned()),
            several => usual().with_context(|| {
                format!(
                    "package {} has several binary targets: choose the operator with --bin: {}",
                    self.name,
                    several.join(", ")
                )
            }),
        }
    }
}

/// Returns a cargo command. If this process was run by cargo, the same cargo is used.
pub(crate) fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // A cargo process that runs this process sets variables about its own package. Build scripts that read them, such
    // as ring's, would run again, and everything that depends on them would be rebuilt, whenever the outer package
    // differs.
    let variables = std::env::vars_os().map(|(name, _)| name);
    let is_of_package =
        |name: &str| name == "OUT_DIR" || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for name in variables.filter(|name| name.to_str().is_some_and(is_of_package)) {
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
        let package = MetadataPackage {
            name: "cow".into(),
            version: "0.1.0".into(),
            manifest_path: PathBuf::new(),
            default_run: default_run.map(Into::into),
            targets,
            dependencies: Vec::new(),
        };
        package.program(wanted).map_err(|error| error.to_string())
    }

    #[test]
    fn the_operator_is_the_default_binary() {
        assert_eq!(program(None, &["only"], None).as_deref(), Ok("only"));
        assert_eq!(program(None, &["page", "cow"], None).as_deref(), Ok("cow"));
        assert_eq!(program(Some("page"), &["page", "cow"], None).as_deref(), Ok("page"));
        assert_eq!(program(None, &["page", "cow"], Some("page")).as_deref(), Ok("page"));
    }

    #[test]
    fn the_package_and_its_dependencies_by_path_are_local() {
        let package = serde_json::json!({
            "name": "cow", "version": "0.1.0", "manifest_path": "", "targets": [],
            "dependencies": [{"name": "milk", "path": "/milk"}, {"name": "serde", "path": null}, {"name": "kube"}],
        });
        let package: MetadataPackage = serde_json::from_value(package).unwrap();
        assert_eq!(package.local(), ["cow", "milk"]);
    }

    #[test]
    fn an_ambiguous_binary_is_an_error() {
        assert!(program(None, &[], None).unwrap_err().contains("add src/main.rs"));
        assert!(program(None, &["a", "b"], None).unwrap_err().ends_with("choose the operator with --bin: a, b"));
        assert_eq!(
            program(None, &["a", "b"], Some("c")).unwrap_err(),
            "package cow has no binary target c: choose one of a, b with --bin"
        );
    }

    #[test]
    fn a_directory_without_a_package_is_an_error_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let error = Package::find(folder.path(), None).unwrap_err().to_string();
        assert!(error.contains("create a project with kubewright init"), "{error}");
    }
}
