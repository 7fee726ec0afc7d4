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
        return authorization_config::modes(path, clock).await;
    }
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
            "ABAC" => {
                let Some(path) = policies else { bail!("--authorization-mode=ABAC needs --authorization-policy-file") };
                let policies = AbacPolicies::from_lines(&read(path)?);
                AuthorizationMode::Abac(policies.with_context(|| format!("read the policies of {path}"))?)
            }
            "Webhook" => AuthorizationMode::Webhook(Arc::new(reviewers::access(flags, clock).await?)),
            _ => builtin_mode(name).with_context(|| {
                format!(
                    "--authorization-mode={name} is no mode: use RBAC, Node, ABAC, Webhook, AlwaysAllow or AlwaysDeny"
                )
            })?,
        });
    }
    Ok(modes)
}

/// Returns a mode that needs no file.
pub(super) fn builtin_mode(name: &str) -> Option<AuthorizationMode> {
    Some(match name {
        "RBAC" => AuthorizationMode::Rbac,
        "Node" => AuthorizationMode::Node,
        "AlwaysAllow" => AuthorizationMode::AlwaysAllow,
        "AlwaysDeny" => AuthorizationMode::AlwaysDeny,
        _ => return None,
    })
}
