//! The authorization of `kube-apiserver`, by its flags.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_cluster::{AbacPolicies, AuthorizationMode};

use super::{api_server::read, flags::Flags, reviewers};

/// Returns the modes of `--authorization-mode`, in their order.
///
/// # Errors
/// If a mode doesn't exist, is named twice, or if its file is missing, can't be read, or is that of another mode.
pub(super) async fn modes(flags: &Flags, clock: &SharedClock) -> Result<Vec<AuthorizationMode>> {
    let mut names = flags.list("authorization-mode");
    if names.is_empty() {
        names.push("AlwaysAllow");
    }
    let policies = flags.last("authorization-policy-file");
    for (flag, mode) in [("authorization-policy-file", "ABAC"), ("authorization-webhook-config-file", "Webhook")] {
        if flags.last(flag).is_some() && !names.contains(&mode) {
            bail!("--{flag} is for --authorization-mode={mode}, which is missing");
        }
    }
    let mut modes = Vec::new();
    for (index, &name) in names.iter().enumerate() {
        if names[..index].contains(&name) {
            bail!("--authorization-mode={} names {name} more than once", names.join(","));
        }
        modes.push(match name {
            "RBAC" => AuthorizationMode::Rbac,
            "Node" => AuthorizationMode::Node,
            "AlwaysAllow" => AuthorizationMode::AlwaysAllow,
            "AlwaysDeny" => AuthorizationMode::AlwaysDeny,
            "ABAC" => {
                let Some(path) = policies else { bail!("--authorization-mode=ABAC needs --authorization-policy-file") };
                let policies = AbacPolicies::from_lines(&read(path)?);
                AuthorizationMode::Abac(policies.with_context(|| format!("read the policies of {path}"))?)
            }
            "Webhook" => AuthorizationMode::Webhook(Arc::new(reviewers::access(flags, clock).await?)),
            _ => bail!(
                "--authorization-mode={name} is no mode: use RBAC, Node, ABAC, Webhook, AlwaysAllow or AlwaysDeny"
            ),
        });
    }
    Ok(modes)
}
