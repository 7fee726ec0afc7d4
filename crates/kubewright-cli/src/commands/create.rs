//! `kubewright create`: adds an API or a webhook to a project.

use anyhow::{Result, bail};
use clap::{ArgAction, Subcommand};
use kubewright_scaffold::{
    command::{CreateApi, CreateWebhook, DeployImage, ExternalApi, Step},
    external::Feature,
    name::{Domain, Plural, Version},
    record,
};

use super::kind_name::KindName;
use crate::{
    external::{self, Plugins},
    project::OpenProject,
    shell::Shell,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Add an API: its types, its controller and its manifests
    Api(Box<Api>),
    /// Add admission webhooks of a kind, or its conversion between versions
    Webhook(Box<Webhook>),
}

/// The display order of rarely used options.
const LAST: usize = 100;

/// The heading of the options of the plugin `deploy-image`.
const IMAGE: &str = "Options of the plugin deploy-image";

/// Arguments of `kubewright create api`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Add an API, and ask whether to create its types and its controller
  kubewright create api --group batch --version v1 --kind CronJob

  # Add both without asking
  kubewright create api --group batch --version v1 --kind CronJob --resource --controller

  # Add a controller for a built-in kind
  kubewright create api --group apps --version v1 --kind Deployment --resource=false

  # Add a controller for a kind of another crate
  kubewright create api --group cert-manager --version v1 --kind Certificate --resource=false \\
      --external-api-path cert_manager::v1 --external-api-domain io --external-api-module cert-manager@1

  # Add a controller that runs an image, with its test
  kubewright create api --group cache --version v1 --kind Memcached --plugins deploy-image --image memcached:1.6-alpine \\
      --image-container-command memcached,--memory-limit=64 --image-container-port 11211 --run-as-user 1001

  # Add a type that is only applied, as another controller's settings, without a controller of its own
  kubewright create api --group batch --version v1 --kind Settings --resource --controller=false

On a terminal, the command asks for --resource and --controller if they are not given. Otherwise both default to true.")]
pub(crate) struct Api {
    #[command(flatten)]
    of: KindOptions,

    /// Plural resource name, in lower case [default: the English plural of the kind]
    #[arg(long)]
    plural: Option<Plural>,

    /// Create the types and the manifests
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    resource: Option<bool>,

    /// Create the controller
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    controller: Option<bool>,

    /// Whether the kind is namespaced
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

    /// Image that the controller runs (plugin deploy-image)
    #[arg(long, help_heading = IMAGE)]
    image: Option<String>,

    /// Command of the container, separated by commas [default: that of the image]
    #[arg(long, value_name = "COMMAND", value_delimiter = ',', allow_hyphen_values = true, requires = "image", help_heading = IMAGE)]
    image_container_command: Vec<String>,

    /// Default port of the container
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), requires = "image", help_heading = IMAGE)]
    image_container_port: Option<u16>,

    /// User ID of the container [default: that of the image]
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(i64).range(1..), requires = "image", help_heading = IMAGE)]
    run_as_user: Option<i64>,
}

/// Arguments of `kubewright create webhook`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Add defaulting and validation
  kubewright create webhook --group batch --version v1 --kind CronJob --defaulting --programmatic-validation

  # Store objects as v2, and convert them from and to v1 and v1beta1
  kubewright create webhook --group batch --version v2 --kind CronJob --conversion --spoke v1,v1beta1

  # Validate a built-in kind
  kubewright create webhook --group core --version v1 --kind Pod --programmatic-validation")]
pub(crate) struct Webhook {
    #[command(flatten)]
    of: KindOptions,

    /// Add a defaulting webhook
    #[arg(long)]
    defaulting: bool,

    /// Add a validating webhook
    #[arg(long)]
    programmatic_validation: bool,

    /// Make this version the hub and storage version, and convert the other versions from and to it
    #[arg(long)]
    conversion: bool,

    /// Other versions that are converted, separated by commas
    #[arg(long, value_name = "VERSIONS", value_delimiter = ',')]
    spoke: Vec<Version>,
}

// Not a doc comment: clap would show it as the help of the command.
#[derive(Debug, clap::Args)]
struct KindOptions {
    #[command(flatten)]
    name: KindName,

    /// Overwrite existing files, including changes made by hand
    #[arg(long, display_order = LAST)]
    force: bool,

    /// Module of a type in another crate, such as gateway_api::gateways
    #[arg(long, value_name = "PATH", value_parser = path, display_order = LAST)]
    external_api_path: Option<String>,

    /// Domain of the API group of an external type
    #[arg(long, value_name = "DOMAIN", requires = "external_api_path", display_order = LAST)]
    external_api_domain: Option<Domain>,

    /// Crate of an external type, such as gateway-api@0.20 [default: the first part of the path]
    #[arg(long, value_name = "CRATE", requires = "external_api_path", value_parser = module, display_order = LAST)]
    external_api_module: Option<String>,

    #[command(flatten)]
    plugins: Plugins,
}

impl KindOptions {
    fn external(&self) -> Option<ExternalApi> {
        let domain = self.external_api_domain.as_ref().map(ToString::to_string).unwrap_or_default();
        let module = self.external_api_module.clone().unwrap_or_default();
        self.external_api_path.clone().map(|path| ExternalApi { path, domain, module })
    }
}

/// Parses the path of a Rust module.
fn path(text: &str) -> Result<String, String> {
    let is_name = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if text.split("::").all(is_name) {
        return Ok(text.into());
    }
    Err("use the path of a Rust module, such as gateway_api::gateways".into())
}

/// Parses the name of a crate and an optional version.
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
    Err("use the name of a crate, optionally with a version, such as gateway-api@0.20".into())
}

/// Runs a subcommand.
pub(crate) fn run(command: Command, shell: &Shell) -> Result<()> {
    match command {
        Command::Api(arguments) => create_api(*arguments, shell),
        Command::Webhook(arguments) => create_webhook(*arguments, shell),
    }
}

fn create_api(arguments: Api, shell: &Shell) -> Result<()> {
    let opened = OpenProject::find()?;
    let external = arguments.of.external();
    let KindOptions { name: KindName { group, version, kind }, force, plugins, .. } = arguments.of;
    let image = match (plugins.feature(Some(Feature::DeployImage))?, &arguments.image) {
        (true, Some(image)) => {
            let mut image = DeployImage::new(image);
            (image.command, image.port) = (arguments.image_container_command, arguments.image_container_port);
            image.run_as_user = arguments.run_as_user;
            Some(image)
        }
        (true, None) => bail!("the plugin deploy-image needs an image: set --image"),
        (false, Some(_)) => bail!("--image belongs to the plugin deploy-image: add --plugins deploy-image"),
        (false, None) => None,
    };
    let chain = opened.chain(&plugins.plugins)?;
    let mut api = CreateApi::new(group, version, kind);
    api.plural = arguments.plural;
    api.namespaced = arguments.namespaced;
    (api.force, api.external) = (force, external);
    api.resource = match arguments.resource {
        Some(wanted) => wanted,
        None if image.is_some() => true,
        None if api.external.is_some() || !chain.has_built_in() => false,
        None => shell.ask("Create Resource")?,
    };
    api.controller = match arguments.controller {
        Some(wanted) => wanted,
        None if image.is_some() => true,
        None if !chain.has_built_in() => false,
        None => shell.ask("Create Controller")?,
    };
    api.image = image;
    let has_types = api.resource && chain.has_built_in();
    let step = Step::CreateApi(Box::new(api));
    opened.scaffold(&chain, external::Command::CreateApi, shell, |plan| {
        Ok(record::plan(&step, &opened.project, plan)?)
    })?;
    if has_types {
        shell.status("Next", "edit the fields of its spec, then run kubewright manifests");
    }
    Ok(())
}

fn create_webhook(arguments: Webhook, shell: &Shell) -> Result<()> {
    let opened = OpenProject::find()?;
    let external = arguments.of.external();
    let KindOptions { name: KindName { group, version, kind }, force, plugins, .. } = arguments.of;
    let chain = opened.chain(&plugins.plugins)?;
    plugins.feature(None)?;
    let group = group.map(|group| group.to_string()).unwrap_or_default();
    let mut webhook = CreateWebhook::new(&group, version, kind);
    (webhook.defaulting, webhook.validation) = (arguments.defaulting, arguments.programmatic_validation);
    (webhook.conversion, webhook.spokes) = (arguments.conversion, arguments.spoke);
    (webhook.force, webhook.external) = (force, external);
    let next = match webhook.conversion {
        true => {
            "declare what differs in the types of the other versions (cargo check names the fields), then run kubewright manifests"
        }
        false => "write the defaults or the validation, then run kubewright manifests",
    };
    let step = Step::CreateWebhook(Box::new(webhook));
    opened.scaffold(&chain, external::Command::CreateWebhook, shell, |plan| {
        Ok(record::plan(&step, &opened.project, plan)?)
    })?;
    if chain.has_built_in() {
        shell.status("Next", next);
    }
    Ok(())
}
