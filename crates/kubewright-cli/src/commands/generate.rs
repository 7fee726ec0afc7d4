//! `kubewright generate`: the files of a bundle for the Operator Lifecycle Manager.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use kubewright_apimachinery::description::Description;
use kubewright_manifests::{
    installer::{rendered, with_image},
    olm::{BASES, BundleOptions, add_owned, add_resources, base, bundle, kustomization, tagged_images, use_digests},
    yaml,
};
use kubewright_scaffold::plan::Source;
use serde_json::Value;

use super::installer::below;
use crate::{
    directory::entry_names,
    oci::registry::{self, credentials, reference::Reference},
    operator::{self, Package},
    project::{OpenProject, change},
    render::render,
    shell::Shell,
};

/// The directory that a bundle is rendered from.
const MANIFESTS: &str = "config/manifests";
const DEFINITIONS: &str = "config/crd/bases";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Generate what kustomize needs for a bundle
    #[command(subcommand)]
    Kustomize(Kustomize),
    /// Generate a bundle for the Operator Lifecycle Manager
    Bundle(Bundle),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Kustomize {
    /// Generate the part of the ClusterServiceVersion that you edit
    Manifests(Manifests),
}

/// Arguments of `kubewright generate kustomize manifests`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Write config/manifests, and add new kinds to it later
  kubewright generate kustomize manifests

  # Leave out the resources of the kinds, for which the operator has to be built
  kubewright generate kustomize manifests --no-build

Edit the names, the description and the icon in config/manifests/bases. Kinds and their fields are taken from config/crd/bases: run kubewright
manifests first. The resources of a kind are the kinds that its controllers own, by what the operator's main function registers; the operator is
built if it is not up to date. Entries that you edited stay.")]
pub(crate) struct Manifests {
    /// Name of the package [default: the name of the project]
    #[arg(long, value_name = "NAME")]
    package: Option<String>,

    /// Binary target of the operator, if the package has several
    #[arg(long, value_name = "NAME")]
    bin: Option<String>,

    /// Use this program instead of building the operator
    #[arg(long, value_name = "FILE", conflicts_with = "bin")]
    program: Option<PathBuf>,

    /// Leave out the resources of kinds, and do not build the operator
    #[arg(long, conflicts_with_all = ["bin", "program"])]
    no_build: bool,
}

/// Arguments of `kubewright generate bundle`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Write bundle and bundle.Dockerfile
  kubewright generate bundle --version 0.1.0 --image registry.example.com/me/cronjob:v0.1.0

  # Say in which channels the version is
  kubewright generate bundle --version 0.1.0 --channels stable,candidate --default-channel stable

  # Name images by their digests, for clusters without access to the Internet
  kubewright generate bundle --version 0.1.0 --image registry.example.com/me/cronjob:v0.1.0 --use-image-digests

  # Build its image with a container engine
  docker build --file bundle.Dockerfile --tag registry.example.com/me/cronjob-bundle:v0.1.0 .

The command renders config/manifests with kustomize or kubectl: the operator, its kinds, and the samples, which become examples. OLM issues
the certificates of webhooks, so the operator gets --webhook-cert-path. Tags of images stay, unless --use-image-digests is
given: then their registries are asked for the digests, with the credentials of docker login, and spec.relatedImages lists all images.")]
pub(crate) struct Bundle {
    /// Version of the operator [default: the version of the package]
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,

    /// Channels, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "alpha")]
    channels: Vec<String>,

    /// Default channel of the package
    #[arg(long, value_name = "NAME")]
    default_channel: Option<String>,

    /// Name of the package [default: the name of the project]
    #[arg(long, value_name = "NAME")]
    package: Option<String>,

    /// Image of the operator [default: the image in config/manifests]
    #[arg(long, value_name = "IMAGE", env = "IMG")]
    image: Option<String>,

    /// Replace the tags of images in Deployments and in their variables RELATED_IMAGE_* by digests, and list them in
    /// spec.relatedImages
    #[arg(long)]
    use_image_digests: bool,

    /// Directory to render
    #[arg(long, value_name = "DIR", default_value = MANIFESTS, value_parser = below)]
    kustomize_dir: String,

    /// Directory of the bundle
    #[arg(long, value_name = "DIR", default_value = "bundle", value_parser = below)]
    output_dir: String,
}

/// Runs a subcommand.
pub(crate) async fn run(command: Command, shell: &Shell) -> Result<()> {
    match command {
        Command::Kustomize(Kustomize::Manifests(arguments)) => generate_manifests(arguments, shell).await,
        Command::Bundle(arguments) => generate_bundle(arguments, shell).await,
    }
}

/// Writes or updates `config/manifests`.
async fn generate_manifests(arguments: Manifests, shell: &Shell) -> Result<()> {
    let opened = OpenProject::find()?;
    let folder = opened.folder();
    let package = arguments.package.clone().unwrap_or_else(|| opened.project.project_name.clone());
    let path = format!("{BASES}/{package}.clusterserviceversion.yaml");
    let there = folder.read(&path).with_context(|| format!("read {path}"))?;
    let mut csv = match &there {
        Some(text) => yaml::read(text).with_context(|| format!("read {path}"))?.into_iter().next().unwrap_or_default(),
        None => base(&package, opened.project.namespaced),
    };
    if !csv["spec"].is_object() {
        bail!("{path} has no spec: restore it from version control, or delete it to generate it again");
    }
    let before = csv.clone();
    add_owned(&mut csv, &definitions(&opened)?);
    if let Some(description) = description(&arguments, folder.path(), shell).await? {
        add_resources(&mut csv, &description);
    }
    let has_samples = folder.path().join("config/samples/kustomization.yaml").is_file();
    let text = match there {
        // A file without changes keeps its comments.
        Some(there) if csv == before => there,
        _ => yaml::documents([&csv])?,
    };
    change(folder, shell, |plan| {
        plan.replace(&path, text);
        plan.create_if_missing(&format!("{MANIFESTS}/kustomization.yaml"), kustomization(&package, has_samples));
        Ok(())
    })?;
    shell.status(
        "Next",
        format!("edit the names, the description and the icon in {path}, then run kubewright generate bundle"),
    );
    Ok(())
}

/// Returns the description of the operator, unless it should not be built.
async fn description(arguments: &Manifests, folder: &Path, shell: &Shell) -> Result<Option<Description>> {
    if arguments.no_build {
        return Ok(None);
    }
    let program = match &arguments.program {
        Some(program) => Ok(program.clone()),
        None => Package::find(folder, arguments.bin.as_deref()).and_then(|package| operator::build(&package, shell)),
    };
    let program = program.context("find out which kinds the operator owns (--no-build leaves them out)")?;
    Ok(Some(operator::describe(&program).await?))
}

/// Reads the definitions of the project.
fn definitions(opened: &OpenProject) -> Result<Vec<Value>> {
    let root = opened.folder().path().join(DEFINITIONS);
    let names = if root.is_dir() { entry_names(&root)? } else { Vec::new() };
    let mut all = Vec::new();
    for name in names.into_iter().filter(|name| name.ends_with(".yaml")) {
        let path = format!("{DEFINITIONS}/{name}");
        let text = opened.folder().read(&path).with_context(|| format!("read {path}"))?.unwrap_or_default();
        all.extend(yaml::read(&text).with_context(|| format!("read {path}"))?);
    }
    Ok(all)
}

/// Writes the bundle.
async fn generate_bundle(arguments: Bundle, shell: &Shell) -> Result<()> {
    let opened = OpenProject::find()?;
    let folder = opened.folder();
    let root = folder.path().join(&arguments.kustomize_dir);
    if !root.join("kustomization.yaml").is_file() {
        bail!(
            "{} has no kustomization.yaml: run kubewright generate kustomize manifests first",
            arguments.kustomize_dir
        );
    }
    let version = match arguments.version {
        Some(version) => version,
        None => Package::find(folder.path(), None)?.version,
    };
    let package = arguments.package.unwrap_or_else(|| opened.project.project_name.clone());
    let mut options = BundleOptions::new(&package, &version);
    (options.channels, options.default_channel) = (arguments.channels, arguments.default_channel);
    (options.folder, options.layout) = (arguments.output_dir, opened.project.layout.join(","));
    let mut objects = with_image(rendered(&render(&root)?)?, arguments.image.as_deref())?;
    let mut files = bundle(&objects, &options)?;
    if arguments.use_image_digests {
        let digests = digests(&objects, shell).await?;
        use_digests(&mut objects, &digests);
        files = bundle(&objects, &options)?;
    }
    let manifests = format!("{}/manifests", options.folder);
    let found = folder.path().join(&manifests);
    let names = if found.is_dir() { entry_names(&found)? } else { Vec::new() };
    for path in names.into_iter().map(|name| format!("{manifests}/{name}")) {
        if !files.iter().any(|file| file.path == path) {
            shell.warning(&format!("{path} is not generated from this project: remove it if it is left over"));
        }
    }
    change(folder, shell, |plan| {
        for file in files {
            plan.replace(&file.path, file.text);
        }
        Ok(())
    })?;
    shell.status("Next", format!("kubewright bundle validate {}", options.folder));
    Ok(())
}

/// Asks the registries of images for their digests. Returns each image with its name by digest.
async fn digests(objects: &[Value], shell: &Shell) -> Result<BTreeMap<String, String>> {
    let mut digests = BTreeMap::new();
    for image in tagged_images(objects) {
        let failed = || format!("resolve the image {image} to a digest; nothing was written");
        shell.status("Resolving", &image);
        let reference = Reference::parse(&image).with_context(failed)?;
        let credentials = credentials::find(&reference.registry).with_context(failed)?;
        let digest = registry::resolve(&reference, credentials).await.with_context(failed)?;
        shell.detail("Resolved", format!("{image} is {digest}"));
        digests.insert(image, format!("{}/{}@{digest}", reference.registry, reference.repository));
    }
    Ok(digests)
}
