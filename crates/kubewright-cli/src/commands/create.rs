//! `kubewright create`: a kind or its webhooks, in a project.

use anyhow::Result;
use clap::{ArgAction, Subcommand};
use kubewright_scaffold::{
    command::{CreateApi, CreateWebhook, External, Step},
    name::{Domain, Group, Kind, Plural, Version},
};

use crate::{
    external::{self, Plugins},
    project::Opened,
    shell::Shell,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A kind: its types, its controller, its manifests.
    Api(Box<Api>),
    /// Webhooks of a kind: what is set and what is refused before one is stored.
    Webhook(Box<Webhook>),
}

/// Where options stand that both commands share and few people need.
const LAST: usize = 100;

/// Which kind, and what of it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright create api --group batch --version v1 --kind CronJob
  kubewright create api --group batch --version v1 --kind CronJob --resource --controller
  kubewright create api --group apps --version v1 --kind Deployment --resource=false
  kubewright create api --group cert-manager --version v1 --kind Certificate --resource=false \\
      --external-api-path cert_manager::v1 --external-api-domain io --external-api-module cert-manager@1

On a terminal it asks what isn't told of --resource and --controller; elsewhere both are made.")]
pub(crate) struct Api {
    #[command(flatten)]
    of: KindArguments,

    /// What many are called, in lower case [default: by the rules of English].
    #[arg(long)]
    plural: Option<Plural>,

    /// Make its types and manifests.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    resource: Option<bool>,

    /// Make its controller.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    controller: Option<bool>,

    /// Its objects are in namespaces.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = ArgAction::Set
    )]
    namespaced: bool,
}

/// Which kind, and what is done with it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright create webhook --group batch --version v1 --kind CronJob --defaulting --programmatic-validation
  kubewright create webhook --group batch --version v2 --kind CronJob --conversion --spoke v1,v1beta1
  kubewright create webhook --group core --version v1 --kind Pod --programmatic-validation")]
pub(crate) struct Webhook {
    #[command(flatten)]
    of: KindArguments,

    /// Set what may be left out.
    #[arg(long)]
    defaulting: bool,

    /// Refuse what is wrong.
    #[arg(long)]
    programmatic_validation: bool,

    /// Convert other versions to this one, in which objects are then stored, and from it.
    #[arg(long)]
    conversion: bool,

    /// The other versions, with commas between.
    #[arg(long, value_name = "VERSIONS", value_delimiter = ',')]
    spoke: Vec<Version>,
}

// Not a doc comment: clap would show it as the command's own.
#[derive(Debug, clap::Args)]
struct KindArguments {
    /// Its group, without the project's domain [default: the domain alone].
    #[arg(long)]
    group: Option<Group>,

    /// Its version, such as v1 or v1alpha1.
    #[arg(long)]
    version: Version,

    /// Its name, such as CronJob.
    #[arg(long)]
    kind: Kind,

    /// Make files anew that are there, whatever was changed in them.
    #[arg(long, display_order = LAST)]
    force: bool,

    /// Where its type is, if another crate has it, such as gateway_api::gateways.
    #[arg(long, value_name = "PATH", value_parser = path, display_order = LAST)]
    external_api_path: Option<String>,

    /// What the group of an external kind ends with.
    #[arg(long, value_name = "DOMAIN", requires = "external_api_path", display_order = LAST)]
    external_api_domain: Option<Domain>,

    /// The crate of an external kind, such as gateway-api@0.20 [default: the first part of the path].
    #[arg(long, value_name = "CRATE", requires = "external_api_path", value_parser = module, display_order = LAST)]
    external_api_module: Option<String>,

    #[command(flatten)]
    plugins: Plugins,
}

impl KindArguments {
    fn external(&self) -> Option<External> {
        let domain = self.external_api_domain.as_ref().map(ToString::to_string).unwrap_or_default();
        let module = self.external_api_module.clone().unwrap_or_default();
        self.external_api_path.clone().map(|path| External { path, domain, module })
    }
}

/// The path of a module in Rust.
fn path(text: &str) -> Result<String, String> {
    let is_name = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if text.split("::").all(is_name) {
        return Ok(text.into());
    }
    Err("use the path of the module with the type, such as gateway_api::gateways".into())
}

/// A crate, and which version.
fn module(text: &str) -> Result<String, String> {
    let is_name = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    };
    let is_version =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "^~=*.-+<>, ".contains(c));
    let (name, version) = text.split_once('@').unwrap_or((text, "*"));
    if is_name(name) && is_version(version) {
        return Ok(text.into());
    }
    Err("use the name of a crate, with a version if you like, such as gateway-api@0.20".into())
}

/// Adds it.
pub(crate) fn run(command: Command, shell: &Shell) -> Result<()> {
    match command {
        Command::Api(arguments) => create_api(*arguments, shell),
        Command::Webhook(arguments) => create_webhook(*arguments, shell),
    }
}

fn create_api(arguments: Api, shell: &Shell) -> Result<()> {
    let opened = Opened::find()?;
    let external = arguments.of.external();
    let KindArguments { group, version, kind, force, plugins, .. } = arguments.of;
    let chain = opened.chain(&plugins.plugins)?;
    let mut api = CreateApi::new(group, version, kind);
    api.plural = arguments.plural;
    api.namespaced = arguments.namespaced;
    (api.force, api.external) = (force, external);
    api.resource = match arguments.resource {
        Some(wanted) => wanted,
        None if api.external.is_some() || !chain.has_ours() => false,
        None => shell.ask("Create Resource")?,
    };
    api.controller = match arguments.controller {
        Some(wanted) => wanted,
        None if !chain.has_ours() => false,
        None => shell.ask("Create Controller")?,
    };
    let has_types = api.resource && chain.has_ours();
    let step = Step::CreateApi(Box::new(api));
    opened.scaffold(&chain, external::Command::CreateApi, shell, |plan| Ok(step.carry_out(&opened.project, plan)?))?;
    if has_types {
        shell.status("Next", "write its fields, then: kubewright manifests");
    }
    Ok(())
}

fn create_webhook(arguments: Webhook, shell: &Shell) -> Result<()> {
    let opened = Opened::find()?;
    let external = arguments.of.external();
    let KindArguments { group, version, kind, force, plugins, .. } = arguments.of;
    let chain = opened.chain(&plugins.plugins)?;
    let group = group.map(|group| group.to_string()).unwrap_or_default();
    let mut webhook = CreateWebhook::new(&group, version, kind);
    (webhook.defaulting, webhook.validation) = (arguments.defaulting, arguments.programmatic_validation);
    (webhook.conversion, webhook.spokes) = (arguments.conversion, arguments.spoke);
    (webhook.force, webhook.external) = (force, external);
    let next = match webhook.conversion {
        true => "say in the other versions' types what differs (cargo check names it), then: kubewright manifests",
        false => "say what is set or refused, then: kubewright manifests",
    };
    let step = Step::CreateWebhook(Box::new(webhook));
    opened
        .scaffold(&chain, external::Command::CreateWebhook, shell, |plan| Ok(step.carry_out(&opened.project, plan)?))?;
    if chain.has_ours() {
        shell.status("Next", next);
    }
    Ok(())
}
