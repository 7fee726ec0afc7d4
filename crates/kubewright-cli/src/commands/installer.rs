//! `kubewright build-installer` and `kubewright helm`: generate a single file, or a Helm chart, that installs the
//! operator.

use std::path::Path;

use anyhow::{Context, Result};
use kubewright_manifests::{
    File,
    chart::{About, chart, keep},
    installer::{installer, rendered, with_image},
};
use kubewright_scaffold::{
    plan::Source,
    project::{self, Project},
    write::Folder,
};
use serde_json::Value;

use crate::{
    directory::entry_names,
    operator::Package,
    project::{change, project_folder},
    render::render,
    shell::Shell,
};

/// The directory to render.
const DEFAULT: &str = "config/default";

/// Arguments of `kubewright build-installer`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Write dist/install.yaml, and apply it
  kubewright build-installer --image registry.example.com/me/cronjob:v1
  kubectl apply -f dist/install.yaml

The command renders config/default with kustomize or kubectl. Run kubewright manifests first if the operator has changed.")]
pub(crate) struct Arguments {
    /// Image of the operator [default: the image in config/default]
    #[arg(long, value_name = "IMAGE", env = "IMG")]
    image: Option<String>,
}

/// Arguments of `kubewright helm`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Write a chart to dist/chart, and install it
  kubewright helm --image registry.example.com/me/cronjob:v1
  helm install cronjob dist/chart --namespace cronjob-system --create-namespace

  # Write it to charts/chart
  kubewright helm --output-dir charts

Edits of values.yaml are kept: a value that the chart newly has is added. With --image, the image is changed there. All other files are
overwritten. The names of values are those of kubebuilder's helm/v2-alpha.

The command renders config/default with kustomize or kubectl. Run kubewright manifests first if the operator has changed.")]
pub(crate) struct HelmArguments {
    /// Default image of the chart [default: the image in config/default]
    #[arg(long, value_name = "IMAGE", env = "IMG")]
    image: Option<String>,

    /// Version of the chart [default: the version of the package]
    #[arg(long, value_name = "VERSION")]
    chart_version: Option<String>,

    /// Directory of the project for the directory chart
    #[arg(long, value_name = "DIR", default_value = "dist", value_parser = below)]
    output_dir: String,

    /// Overwrite edits of values.yaml
    #[arg(long)]
    force: bool,
}

/// Parses a path in the project.
pub(super) fn below(text: &str) -> Result<String, String> {
    let text = text.trim_start_matches("./").trim_end_matches('/');
    let is_name = |part: &str| !part.is_empty() && part != "." && part != "..";
    if text.split('/').all(is_name) {
        return Ok(text.to_owned());
    }
    Err("use the path of a directory below the project, such as dist".into())
}

/// Writes `dist/install.yaml`.
pub(crate) fn run(arguments: &Arguments, shell: &Shell) -> Result<()> {
    let folder = project_folder()?;
    let file = installer(&with_image(objects(&folder)?, arguments.image.as_deref())?)?;
    write(&folder, vec![file], shell)
}

/// Writes the chart.
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
    let mut about = About::new(&name, &version);
    about.folder = format!("{}/chart", arguments.output_dir);
    let mut files = chart(&objects, &about)?;
    let values = format!("{}/values.yaml", about.folder);
    let edited = Folder::new(&folder).read(&values).with_context(|| format!("read {values}"))?;
    if let (Some(edited), Some(new)) =
        (edited.filter(|_| !arguments.force), files.iter_mut().find(|file| file.path == values))
    {
        let kept = keep(&values, &edited, &new.text, arguments.image.is_some())?;
        if kept == edited && edited != new.text {
            shell.status("Kept", format!("{values} (use --force to overwrite it)"));
        }
        new.text = kept;
    }
    for path in unknown_templates(&folder, &about.folder, &files)? {
        shell.warning(&format!("{path} is not generated from this project: remove it if it is left over"));
    }
    write(&folder, files, shell)
}

/// Returns the templates in the chart's directory that were not generated.
fn unknown_templates(folder: &Path, chart: &str, files: &[File]) -> Result<Vec<String>> {
    let mut unknown = Vec::new();
    for below in ["templates", "templates/crd"] {
        let below = format!("{chart}/{below}");
        let found = folder.join(&below);
        let names = if found.is_dir() { entry_names(&found)? } else { Vec::new() };
        let paths = names.into_iter().map(|name| format!("{below}/{name}")).filter(|path| folder.join(path).is_file());
        unknown.extend(paths.filter(|path| !files.iter().any(|file| file.path == *path)));
    }
    Ok(unknown)
}

/// Renders all objects of the operator.
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
