//! The authorization of `kube-apiserver`, by its flags.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_cluster::{AbacPolicies, AuthorizationMode};

use super::{api_server::read, authorization_config, flags::Flags, reviewers};

/// Returns the modes of `--authorization-config` or of `--authorization-mode`, in their order.
///
/// # Errors
/// If a mode doesn't exist, is named twice, if its file is missing, can't be read, or is that of another mode, or if
/// both flags are given.
pub(super) async fn modes(flags: &Flags, clock: &SharedClock) -> Result<Vec<AuthorizationMode>> {
    if let Some(path) = flags.last("authorization-config") {
        let others = ["authorization-mode", "authorization-webhook-config-file"];
        if let Some(other) = others.into_iter().find(|flag| flags.last(flag).is_some()) {
            bail!("--authorization-config and --{other} can't be used together");
        }
        return authorization_config::modes(path, flags, clock).await;
    }
    let mut names = flags.list("authorization-mode");
    if names.is_empty() {
        names.push("AlwaysAllow");
    }
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
            "Webhook" => AuthorizationMode::Webhook(Arc::new(reviewers::access(flags, clock).await?)),
            _ => mode_of_name(name, flags)?,
        });
    }
    Ok(modes)
}

/// Returns the mode of a name, which is not `Webhook`.
///
/// # Errors
/// If the mode doesn't exist, or if its file is missing or can't be read.
pub(super) fn mode_of_name(name: &str, flags: &Flags) -> Result<AuthorizationMode> {
    Ok(match name {
        "RBAC" => AuthorizationMode::Rbac,
        "Node" => AuthorizationMode::Node,
        "AlwaysAllow" => AuthorizationMode::AlwaysAllow,
        "AlwaysDeny" => AuthorizationMode::AlwaysDeny,
        "ABAC" => {
            let path = flags.last("authorization-policy-file").context("ABAC needs --authorization-policy-file")?;
            let policies = AbacPolicies::from_lines(&read(path)?);
            AuthorizationMode::Abac(policies.with_context(|| format!("read the policies of {path}"))?)
        }
        _ => bail!("{name} is no mode of authorization: use RBAC, Node, ABAC, Webhook, AlwaysAllow or AlwaysDeny"),
    })
}
