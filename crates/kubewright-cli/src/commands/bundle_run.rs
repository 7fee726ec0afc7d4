//! `kubewright bundle run`, `bundle upgrade` and `bundle cleanup`: installs and deletes operators by the Operator
//! Lifecycle Manager.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{ArgAction, ValueEnum};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_manifests::olm::{
    catalog::{CatalogBundle, CatalogOptions, INDEX_IMAGE, InstallMode, catalog_name},
    validate,
};
use serde_json::Value;

use super::bundle::files;
use crate::{
    oci::registry::reference::Reference,
    olm::{self, CleanupOptions, Olm},
    remote::{Connection, WaitOptions, text},
    shell::Shell,
};

/// The image that serves catalogs.
const OPM: &str = "quay.io/operator-framework/opm:latest";

/// Arguments of `kubewright bundle run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Generate a bundle, build and push its image, and install it
  kubewright generate bundle --version 0.1.0 --image ghcr.io/me/cronjob:v0.1.0
  docker build --file bundle.Dockerfile --tag ghcr.io/me/cronjob-bundle:v0.1.0 . && docker push ghcr.io/me/cronjob-bundle:v0.1.0
  kubewright bundle run ghcr.io/me/cronjob-bundle:v0.1.0 --namespace operators

  # Let the operator work in one other namespace only
  kubewright bundle run ghcr.io/me/cronjob-bundle:v0.1.0 --namespace operators --install-mode SingleNamespace=shop

  # Read the files of the bundle from this machine; the cluster still pulls the image
  kubewright bundle run ghcr.io/me/cronjob-bundle:v0.1.0 --directory ./bundle

The cluster needs the Operator Lifecycle Manager (OLM), version 0. The bundle is checked as by kubewright bundle validate, and a catalog
with it is served by a pod of the index image. The command creates a CatalogSource, an OperatorGroup if the namespace has none, and a
Subscription, approves its InstallPlan, and waits until the ClusterServiceVersion has succeeded. The exit code is 1 if it has not within the
timeout; then the objects stay, and kubewright bundle cleanup deletes them.

Without --install-mode, the operator works in all namespaces, or in its own if it does not support that. An existing OperatorGroup is used,
and has to fit.")]
pub(crate) struct Run {
    #[command(flatten)]
    source: Source,

    /// Namespaces in which the operator works: AllNamespaces, OwnNamespace, SingleNamespace=NAME or
    /// MultiNamespace=NAME,NAME
    #[arg(long, value_name = "MODE")]
    install_mode: Option<InstallMode>,

    #[command(flatten)]
    catalog: Catalog,

    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Arguments of `kubewright bundle upgrade`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Replace the installed version of the operator
  kubewright bundle upgrade ghcr.io/me/cronjob-bundle:v0.2.0 --namespace operators

The package has to be installed, by kubewright bundle run or otherwise. A catalog in which the bundle replaces the installed
ClusterServiceVersion is served, the Subscription is changed to it, and its next InstallPlan is approved. What the CatalogSource of the
package says about images, secrets and the security of pods remains, unless options say otherwise.")]
pub(crate) struct Upgrade {
    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    catalog: Catalog,

    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Arguments of `kubewright bundle cleanup`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Delete an operator, its kinds and all objects of them
  kubewright bundle cleanup cronjob --namespace operators

  # Keep the kinds and their objects
  kubewright bundle cleanup cronjob --namespace operators --delete-crds=false

The Subscription is deleted first, then the CustomResourceDefinitions while the operator still runs and can finalize its objects, the
ClusterServiceVersion, the CatalogSource with its pod, and at last the OperatorGroup if a command created it and nothing else in the
namespace needs it. CustomResourceDefinitions that the same operator in another namespace owns stay, and so do CatalogSources with other
packages.")]
pub(crate) struct Cleanup {
    /// Name of the package
    package: String,

    /// Delete the CustomResourceDefinitions of the operator, and all objects of its kinds
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    delete_crds: bool,

    /// Delete the OperatorGroup, unless others need it
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    delete_operator_groups: bool,

    /// Delete everything, which is the default; an error if another option says otherwise
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    delete_all: Option<bool>,

    #[command(flatten)]
    cluster: ClusterOptions,
}

/// The bundle.
#[derive(Debug, clap::Args)]
struct Source {
    /// Image of the bundle, which the cluster pulls
    #[arg(value_name = "IMAGE")]
    image: String,

    /// Read the files of the bundle from this directory instead of the image
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Use HTTP without TLS, as is always done for registries on this machine
    #[arg(long, alias = "use-http", conflicts_with = "directory")]
    plain_http: bool,
}

/// How the catalog is served.
#[derive(Debug, clap::Args)]
struct Catalog {
    /// Image with the program opm that serves the catalog; file-based catalogs in its directory /configs are served,
    /// too, for dependencies [default: quay.io/operator-framework/opm:latest]
    #[arg(long, value_name = "IMAGE")]
    index_image: Option<String>,

    /// Secret of the namespace with credentials for the images of the bundle and of the catalog
    #[arg(long, value_name = "NAME")]
    pull_secret_name: Option<String>,

    /// Service account of the catalog's pod, not of the operator
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,

    /// Security of the catalog's pods [default: restricted if the namespace enforces it, or else legacy]
    #[arg(long, value_name = "CONTEXT")]
    security_context_config: Option<SecurityContext>,
}

#[derive(Debug, clap::Args)]
struct ClusterOptions {
    /// Namespace of the operator [default: that of the context]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,

    #[command(flatten)]
    connection: Connection,

    #[command(flatten)]
    wait: WaitOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SecurityContext {
    /// No restrictions
    Legacy,
    /// As the pod security standard restricted requires
    Restricted,
}

impl Source {
    /// Reads and checks the bundle.
    async fn read(&self, shell: &Shell) -> Result<CatalogBundle> {
        let reference = Reference::parse_pulled(&self.image)?;
        let files = match &self.directory {
            Some(directory) => files(directory)?,
            None => olm::files_of_image(&reference, self.plain_http, shell).await?,
        };
        let found = validate(&files, &[]);
        let (warnings, errors): (Vec<_>, Vec<_>) = found.into_iter().partition(|finding| finding.is_warning);
        for warning in warnings {
            shell.warning(&warning.to_string());
        }
        if !errors.is_empty() {
            let errors: String = errors.iter().map(|error| format!("\n  {error}")).collect();
            bail!("the bundle {reference} is not valid; nothing was changed:{errors}");
        }
        CatalogBundle::read(&files, &reference.to_string()).with_context(|| format!("read the bundle {reference}"))
    }
}

impl Catalog {
    /// Completes the options by those of an existing CatalogSource, and by what the namespace requires.
    async fn options(&self, olm: &Olm<'_>, existing: Option<&Value>) -> CatalogOptions {
        let existing = existing.unwrap_or(&Value::Null);
        let before = |pointer: &str| Some(text(existing, pointer)).filter(|text| !text.is_empty());
        let index_image = existing["metadata"]["annotations"].get(INDEX_IMAGE).and_then(Value::as_str);
        let index_image = self.index_image.as_deref().or(index_image).unwrap_or(OPM);
        let mut options = CatalogOptions::default();
        options.namespace = olm.namespace().into();
        options.index_image = index_image.into();
        options.pull_secret = self.pull_secret_name.as_deref().or(before("/spec/secrets/0")).map(Into::into);
        options.service_account = self.service_account.clone();
        options.is_restricted = match self.security_context_config {
            Some(context) => context == SecurityContext::Restricted,
            None => {
                before("/spec/grpcPodConfig/securityContextConfig") == Some("restricted") || olm.is_restricted().await
            }
        };
        options
    }
}

/// Installs an operator.
pub(crate) async fn run(arguments: Run, clock: &SharedClock, shell: &Shell) -> Result<()> {
    let Run { source, install_mode, catalog, cluster } = arguments;
    let remote = cluster.connection.connect().await?;
    let olm = Olm::find(&remote, cluster.namespace.as_deref()).await?;
    let bundle = source.read(shell).await?;
    shell.status("Installing", format!("{} into {} of {remote}", bundle.name(), olm.namespace()));
    let wait = cluster.wait.start(clock, shell);
    let options = catalog.options(&olm, None).await;
    olm::install(&olm, &bundle, install_mode.as_ref(), options, &wait, shell).await
}

/// Replaces an installed operator.
pub(crate) async fn upgrade(arguments: Upgrade, clock: &SharedClock, shell: &Shell) -> Result<()> {
    let Upgrade { source, catalog, cluster } = arguments;
    let remote = cluster.connection.connect().await?;
    let olm = Olm::find(&remote, cluster.namespace.as_deref()).await?;
    let bundle = source.read(shell).await?;
    let package = bundle.package();
    let Some(subscription) = olm.subscription(package).await? else {
        bail!(
            "package {package} is not installed in {} of {remote}: use kubewright bundle run, or choose the namespace with --namespace",
            olm.namespace()
        );
    };
    let existing = olm.catalog_source(&catalog_name(package)).await?;
    let wait = cluster.wait.start(clock, shell);
    let options = catalog.options(&olm, existing.as_ref()).await;
    olm::upgrade(&olm, &bundle, &subscription, options, &wait, shell).await
}

/// Deletes an operator.
pub(crate) async fn cleanup(arguments: Cleanup, clock: &SharedClock, shell: &Shell) -> Result<()> {
    let Cleanup { package, delete_crds, delete_operator_groups, delete_all, cluster } = arguments;
    if delete_all == Some(true) && !(delete_crds && delete_operator_groups) {
        bail!("--delete-all contradicts an option that keeps something: leave one of them out");
    }
    let remote = cluster.connection.connect().await?;
    let olm = Olm::find(&remote, cluster.namespace.as_deref()).await?;
    let wait = cluster.wait.start(clock, shell);
    let options = CleanupOptions { definitions: delete_crds, groups: delete_operator_groups };
    olm::cleanup(&olm, &package, options, &wait, shell).await
}
