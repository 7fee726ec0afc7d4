//! `kubewright manifests`: writes what can be made of what the operator says of itself.

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
    operator::{self, Package},
    project::entries,
    shell::Shell,
};

/// Where definitions are.
const BASES: &str = "config/crd/bases";
/// Where the configurations of webhooks are.
const WEBHOOKS: &str = "config/webhook/manifests.yaml";
/// How many fields of a definition that is too large are named.
const LARGEST: usize = 3;

/// What to write, and whom to ask.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright manifests
  kubewright manifests --check

It asks the operator's own program, which is built if it is not up to date: what main wires is what is written.")]
pub(crate) struct Arguments {
    /// Only compare; fail when a file is not what it would be
    #[arg(long)]
    check: bool,

    /// Cut descriptions of fields to so many bytes; 0 leaves them out
    #[arg(long, value_name = "BYTES")]
    max_description: Option<usize>,

    /// The operator among the programs of the project
    #[arg(long, value_name = "NAME")]
    bin: Option<String>,

    /// Ask this program, and build none
    #[arg(long, value_name = "FILE", conflicts_with = "bin")]
    program: Option<PathBuf>,
}

/// Writes the manifests of the project, or compares them.
pub(crate) async fn run(arguments: Arguments, shell: &Shell) -> Result<()> {
    let here = std::env::current_dir().context("find the current folder")?;
    let (folder, program) = match arguments.program {
        Some(program) => (project_of(&here), program),
        None => {
            let package = Package::find(&here, arguments.bin.as_deref())?;
            let program = operator::build(&package, shell)?;
            (package.folder, program)
        }
    };
    let description = operator::ask(&program).await?;
    let (root, folder) = (folder.clone(), Folder::new(folder));
    let (made, changes) = plan(&description, &folder, arguments.max_description)?;
    warn_of_size(&made.definitions, shell);
    let stale = stale(&made, &root)?;
    if arguments.check {
        return drift(&changes, &stale);
    }
    for path in &stale {
        shell.warning(&format!("{path} is left over: {}", remedy(path)));
    }
    folder.write(&changes)?;
    for change in &changes {
        shell.status("Wrote", &change.path);
    }
    let (files, written) = (made.files.len(), changes.len());
    shell.status("Finished", format!("manifests: {files} files, of which {written} changed"));
    Ok(())
}

/// What the manifests of a project would be, and what of it is to be written.
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

/// The folder of a project, whose program is known.
fn project_of(here: &Path) -> PathBuf {
    here.ancestors().find(|folder| folder.join("Cargo.toml").exists()).unwrap_or(here).to_owned()
}

/// What kustomize puts before the names of objects.
fn prefix(folder: &Folder) -> Result<String> {
    const FILE: &str = "config/default/kustomization.yaml";
    let text = folder.read(FILE).with_context(|| format!("read {FILE}"))?.unwrap_or_default();
    let documents = yaml::read(&text).with_context(|| format!("read {FILE}"))?;
    Ok(documents.first().and_then(|document| document["namePrefix"].as_str()).unwrap_or_default().to_owned())
}

/// That the operator brings each kind whose types the project has: else its definition would be missing, without a word.
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
                "PROJECT has {kind} of {group}/{version}, and the operator doesn't say that it brings it: add \
                 .kind::<{version}::{kind}>() where the manager is made, or .version::<…>() if another version is stored"
            );
        }
    }
    Ok(())
}

/// Asks the embedded API server's own rules, before anything is written.
fn check(definitions: &[Value]) -> Result<()> {
    let mut wrong = Vec::new();
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        wrong.extend(check_definition(definition).iter().map(|cause| format!("\n  {name}: {cause}")));
    }
    if !wrong.is_empty() {
        bail!("an API server would refuse what was made of the types; nothing was written:{}", wrong.concat());
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
                "{} has {bytes} bytes, more than the {} that kubectl apply can do without --server-side: {}; \
                 --max-description 0 leaves out the descriptions of fields",
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

/// Files of what the operator is no more: definitions of kinds that it doesn't bring, configurations of webhooks that it doesn't have.
///
/// They are told of and not taken away, as controller-gen leaves them: a definition that goes from a cluster takes all objects of its
/// kind along, so a person says so.
fn stale(made: &Manifests, root: &Path) -> Result<Vec<String>> {
    let bases = root.join(BASES);
    let names = if bases.is_dir() { entries(&bases)? } else { Vec::new() };
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

/// Whether a file is one that this command writes: the definition of a kind, under the kind's name.
fn is_base(path: &str, text: &str) -> bool {
    let documents = yaml::read(text).unwrap_or_default();
    let [definition] = documents.as_slice() else { return false };
    definition["kind"] == "CustomResourceDefinition" && definition::path(definition) == path
}

fn remedy(path: &str) -> &'static str {
    if path == WEBHOOKS {
        "the operator has no webhooks any more. Take the file away, and its line in config/webhook/kustomization.yaml"
    } else {
        "the operator doesn't bring this kind any more. Take the file away, and its line in config/crd/kustomization.yaml; a cluster \
         from which the definition is deleted loses all objects of the kind"
    }
}

fn drift(changes: &[Change], stale: &[String]) -> Result<()> {
    let differs = |change: &Change| match change.before {
        Some(_) => format!("\n  {} differs", change.path),
        None => format!("\n  {} is missing", change.path),
    };
    if !changes.is_empty() {
        let files: String = changes.iter().map(differs).collect();
        bail!("the manifests are not what the operator describes: run kubewright manifests{files}");
    }
    if !stale.is_empty() {
        let files: String = stale.iter().map(|path| format!("\n  {path}: {}", remedy(path))).collect();
        bail!("there are manifests of what the operator is no more{files}");
    }
    Ok(())
}
