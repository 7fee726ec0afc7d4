//! The flags that name a kind of a project.

use kubewright_scaffold::name::{Group, Kind, Version};

// Not a doc comment: clap would show it as the help of the command.
#[derive(Debug, clap::Args)]
pub(super) struct KindName {
    /// API group, without the domain of the project [default: only the domain]
    #[arg(long)]
    pub(super) group: Option<Group>,

    /// API version, such as v1 or v1alpha1
    #[arg(long)]
    pub(super) version: Version,

    /// Kind, such as CronJob
    #[arg(long)]
    pub(super) kind: Kind,
}
