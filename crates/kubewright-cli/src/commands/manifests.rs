//! `kubewright manifests`: generates manifests from the operator's description of itself.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use kubewright_apimachinery::description::Description;
use kubewright_apiserver::registry::builtin::check_definition;
use kubewright_manifests::{Manifests, Options, definition, generate, size, yaml};
use kubewright_scaffold::{
    plan::{Change, Plan, Source},
    project::{self, Project},
    write::Folder,
};
use serde_json::Value;

use crate::{
    directory::entry_names,
    operator::{self, Package},
    shell::Shell,
};

/// The directory of CustomResourceDefinitions.
const BASES: &str = "config/crd/bases";
/// The file of webhook configurations.
const WEBHOOKS: &str = "config/webhook/manifests.yaml";
/// The maximum number of fields in the warning about a large definition.
const LARGEST: usize = 3;

/// Arguments of `kubewright manifests`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Update config/crd, config/rbac and config/webhook
  kubewright manifests

  # Fail if they are out of date, for CI
  kubewright manifests --check

The manifests are generated from the kinds, controllers and webhooks that the operator's main function registers. The operator is built if it is
not up to date.")]
pub(crate) struct Arguments {
    /// Write nothing, and fail if a file is out of date
    #[arg(long)]
    check: bool,

    /// Longest description of a field in CustomResourceDefinitions; 0 omits descriptions
    #[arg(long, value_name = "BYTES")]
    max_description: Option<usize>,

    /// Binary target of the operator, if the package has several
    #[arg(long, value_name = "NAME")]
    bin: Option<String>,

    /// Use this program instead of building the operator
    #[arg(long, value_name = "FILE", conflicts_with = "bin")]
    program: Option<PathBuf>,
}

/// Writes or checks the manifests of the project.
pub(crate) async fn run(arguments: Arguments, shell: &Shell) -> Result<()> {
    let here = std::env::current_dir().context("get the current directory")?;
    let (folder, program) = match arguments.program {
        Some(program) => (project_of(&here), program),
        None => {
            let package = Package::find(&here, arguments.bin.as_deref())?;
            let program = operator::build(&package, shell)?;
            (package.folder, program)
        }
    };
    let description = operator::describe(&program).await?;
    let (root, folder) = (folder.clone(), Folder::new(folder));
    let (made, changes) = plan(&description, &folder, arguments.max_description)?;
    warn_of_size(&made.definitions, shell);
    let stale = stale(&made, &root)?;
    if arguments.check {
        return drift(&changes, &stale);
    }
    for path in &stale {
        shell.warning(&format!("{path} is stale: {}", stale_hint(path)));
    }
    folder.write(&changes)?;
    for change in &changes {
        shell.status("Wrote", &change.path);
    }
    let (files, written) = (made.files.len(), changes.len());
    shell.status("Finished", format!("manifests: {files} files, {written} changed"));
    Ok(())
}

/// Generates the manifests of a project, and returns them with the changes to its files.
pub(crate) fn plan(
    description: &Description,
    folder: &Folder,
    max_description: Option<usize>,
) -> Result<(Manifests, Vec<Change>)> {
    let mut options = Options::default();
    options.max_description = max_description;
    options.prefix = prefix(folder)?;
    if let Some(project) = folder.read(project::FILE).context("read PROJECT")? {
        let project = Project::read(&project)?;
        all_declared(&project, description)?;
        options.namespaced = project.namespaced;
    }
    let made = generate(description, &options)?;
    check(&made.definitions)?;
    let changes = changes(&made, folder)?;
    Ok((made, changes))
}

/// Returns the directory of the project if a program is given.
fn project_of(here: &Path) -> PathBuf {
    here.ancestors().find(|folder| folder.join("Cargo.toml").exists()).unwrap_or(here).to_owned()
}

/// Returns the name prefix in the kustomization.
fn prefix(folder: &Folder) -> Result<String> {
    const FILE: &str = "config/default/kustomization.yaml";
    let text = folder.read(FILE).with_context(|| format!("read {FILE}"))?.unwrap_or_default();
    let documents = yaml::read(&text).with_context(|| format!("read {FILE}"))?;
    Ok(documents.first().and_then(|document| document["namePrefix"].as_str()).unwrap_or_default().to_owned())
}

/// Checks that the operator registers each kind of the project. The definition of an unregistered kind would be missing
/// without notice.
fn all_declared(project: &Project, description: &Description) -> Result<()> {
    let definitions = || description.kinds.iter().flat_map(|kind| &kind.versions);
    for resource in project.resources.iter().filter(|resource| resource.api.is_some()) {
        let group = resource.qualified_group();
        let is_it = |definition: &Value| {
            let spec = &definition["spec"];
            spec["group"] == *group
                && spec["names"]["kind"] == *resource.kind
                && spec["versions"][0]["name"] == *resource.version
        };
        if !definitions().any(is_it) {
            let (kind, version) = (&resource.kind, &resource.version);
            bail!(
                "the operator does not register {kind} of {group}/{version}, which PROJECT lists: add .kind::<{version}::{kind}>() to the \
                 manager, or .version::<…>() if another version is stored"
            );
        }
    }
    Ok(())
}

/// Validates definitions according to the rules of the embedded API server.
fn check(definitions: &[Value]) -> Result<()> {
    let mut wrong = Vec::new();
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        wrong.extend(check_definition(definition).iter().map(|cause| format!("\n  {name}: {cause}")));
    }
    if !wrong.is_empty() {
        bail!("the types give invalid CustomResourceDefinitions; nothing was written:{}", wrong.concat());
    }
    Ok(())
}

fn warn_of_size(definitions: &[Value], shell: &Shell) {
    for definition in definitions {
        let bytes = size::bytes(definition);
        if bytes > size::LIMIT {
            let fields = size::largest(definition, LARGEST);
            let fields: Vec<_> = fields.iter().map(|(field, bytes)| format!("{field} has {bytes}")).collect();
            shell.warning(&format!(
                "{} has {bytes} bytes, more than the {} that kubectl apply supports without --server-side: {}; use --max-description 0 to \
                 omit the descriptions of fields",
                definition::path(definition),
                size::LIMIT,
                fields.join(", ")
            ));
        }
    }
}

fn changes(made: &Manifests, folder: &Folder) -> Result<Vec<Change>> {
    let mut plan = Plan::new(folder);
    for file in &made.files {
        plan.replace(&file.path, file.text.as_str());
    }
    Ok(plan.finish()?)
}

/// Returns stale manifests: definitions of kinds, and configurations of webhooks, that the operator no longer has.
///
/// As with controller-gen, they are reported and not deleted: deleting a definition from a cluster deletes all objects
/// of its kind, so the decision is left to the user.
fn stale(made: &Manifests, root: &Path) -> Result<Vec<String>> {
    let bases = root.join(BASES);
    let names = if bases.is_dir() { entry_names(&bases)? } else { Vec::new() };
    let mut stale = Vec::new();
    for path in names.iter().map(|name| format!("{BASES}/{name}")).chain([WEBHOOKS.to_owned()]) {
        let file = root.join(&path);
        if file.is_file() && !made.files.iter().any(|made| made.path == path) {
            let text = fs::read_to_string(&file).with_context(|| format!("read {path}"))?;
            if path == WEBHOOKS || is_base(&path, &text) {
                stale.push(path);
            }
        }
    }
    Ok(stale)
}

/// Returns whether a file is a definition that this command has written, judging by its content and name.
fn is_base(path: &str, text: &str) -> bool {
    let documents = yaml::read(text).unwrap_or_default();
    let [definition] = documents.as_slice() else { return false };
    definition["kind"] == "CustomResourceDefinition" && definition::path(definition) == path
}

fn stale_hint(path: &str) -> &'static str {
    if path == WEBHOOKS {
        "the operator no longer has webhooks; delete the file and its line in config/webhook/kustomization.yaml"
    } else {
        "the operator no longer has this kind; delete the file and its line in config/crd/kustomization.yaml (deleting the definition from a \
         cluster deletes all objects of the kind)"
    }
}

fn drift(changes: &[Change], stale: &[String]) -> Result<()> {
    let differs = |change: &Change| match change.before {
        Some(_) => format!("\n  {} differs", change.path),
        None => format!("\n  {} is missing", change.path),
    };
    if !changes.is_empty() {
        let files: String = changes.iter().map(differs).collect();
        bail!("the manifests do not match the operator: run kubewright manifests to update these files:{files}");
    }
    if !stale.is_empty() {
        let files: String = stale.iter().map(|path| format!("\n  {path}: {}", stale_hint(path))).collect();
        bail!("there are stale manifests:{files}");
    }
    Ok(())
}
