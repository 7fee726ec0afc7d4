//! `kubewright build-installer` and `kubewright helm`: one file, or a chart, to install the operator by.

use std::path::Path;

use anyhow::{Context, Result};
use kubewright_manifests::{
    File,
    chart::{About, FOLDER, chart},
    installer::{installer, rendered, with_image},
};
use kubewright_scaffold::{
    plan::Source,
    project::{self, Project},
    write::Folder,
};
use serde_json::Value;

use crate::{
    operator::Package,
    project::{change, entries, project_folder},
    render::render,
    shell::Shell,
};

/// What is rendered.
const DEFAULT: &str = "config/default";

/// Which image the operator runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright build-installer --image registry.example.com/me/cronjob:v1
  kubectl apply -f dist/install.yaml

It renders config/default, by kustomize or kubectl. Run kubewright manifests before, if the operator has changed.")]
pub(crate) struct Arguments {
    /// The image of the operator; by default what config/default says
    #[arg(long, value_name = "IMAGE", env = "IMG")]
    image: Option<String>,
}

/// What the chart is called.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright helm --image registry.example.com/me/cronjob:v1
  helm install cronjob dist/chart --namespace cronjob-system --create-namespace

It renders config/default, by kustomize or kubectl. Run kubewright manifests before, if the operator has changed.")]
pub(crate) struct HelmArguments {
    /// The image of the operator, as the chart's default; by default what config/default says
    #[arg(long, value_name = "IMAGE", env = "IMG")]
    image: Option<String>,

    /// The version of the chart; by default that of the crate
    #[arg(long, value_name = "VERSION")]
    chart_version: Option<String>,
}

/// Writes `dist/install.yaml`.
pub(crate) fn run(arguments: &Arguments, shell: &Shell) -> Result<()> {
    let folder = project_folder()?;
    let file = installer(&with_image(objects(&folder)?, arguments.image.as_deref())?)?;
    write(&folder, vec![file], shell)
}

/// Writes `dist/chart`.
pub(crate) fn helm(arguments: HelmArguments, shell: &Shell) -> Result<()> {
    let folder = project_folder()?;
    let package = Package::find(&folder, None)?;
    let version = arguments.chart_version.unwrap_or(package.version);
    let named = Folder::new(&folder).read(project::FILE).context("read PROJECT")?;
    let name = match named {
        Some(text) => Project::read(&text)?.project_name,
        None => package.name,
    };
    let objects = with_image(objects(&folder)?, arguments.image.as_deref())?;
    let files = chart(&objects, &About::new(&name, &version))?;
    for path in strangers(&folder, &files)? {
        shell.warning(&format!("{path} is not made of this project (any more): remove it, unless it is yours"));
    }
    write(&folder, files, shell)
}

/// Templates in the folder of the chart that are none of these files.
fn strangers(folder: &Path, files: &[File]) -> Result<Vec<String>> {
    let mut strangers = Vec::new();
    for below in ["templates", "templates/crd"] {
        let below = format!("{FOLDER}/{below}");
        let found = folder.join(&below);
        let names = if found.is_dir() { entries(&found)? } else { Vec::new() };
        let paths = names.into_iter().map(|name| format!("{below}/{name}")).filter(|path| folder.join(path).is_file());
        strangers.extend(paths.filter(|path| !files.iter().any(|file| file.path == *path)));
    }
    Ok(strangers)
}

/// All of the operator, as kustomize renders it.
pub(super) fn objects(folder: &Path) -> Result<Vec<Value>> {
    Ok(rendered(&render(&folder.join(DEFAULT))?)?)
}

fn write(folder: &Path, files: Vec<File>, shell: &Shell) -> Result<()> {
    change(&Folder::new(folder), shell, |plan| {
        for file in files {
            plan.replace(&file.path, file.text);
        }
        Ok(())
    })
}
