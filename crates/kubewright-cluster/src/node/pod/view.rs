//! The view of a container of a pod on the machine: its files, its host name, and the processes that it sees.

use std::{io, path::Path, sync::Arc};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::{machine::StartFailure, spec};
use crate::{
    node::{
        NODE_NAME, NodeContext, hosts, mounts,
        view::{Mount, Propagation, SharedProcesses, TRIAL, Tools, View, ViewOptions, VisibleProcesses},
    },
    object_client::ObjectPath,
};

/// The annotation of the node that says whether volumes are at their mount paths.
const ANNOTATION: &str = "kubewright.dev/mount-namespaces";

/// Creates the view of a container; `None` if it needs none, or the host can't have any. `shared` is the process
/// namespace of its pod.
///
/// # Errors
/// If the process namespace of the pod can't be created.
pub(super) async fn view(
    host: &NodeContext,
    pod: &Pod,
    container: &Container,
    mounts: Vec<Mount>,
    shared: &SharedProcesses,
) -> Result<Option<Arc<View>>, StartFailure> {
    if mounts.is_empty() {
        return Ok(None);
    }
    let Some(tools) = tools(host).await else { return Ok(None) };
    let processes = visible_processes(host, pod, &container.name, &tools, shared).await;
    let has_own_name = pod.spec.as_ref().is_some_and(|spec| spec.host_network != Some(true));
    let security = container.security_context.as_ref();
    let options = ViewOptions {
        host_name: has_own_name.then(|| hosts::host_name(pod).to_owned()),
        read_only: security.is_some_and(|security| security.read_only_root_filesystem == Some(true)),
        processes: processes.map_err(StartFailure::Sandbox)?,
    };
    let directory = host.pod_directory(pod.metadata.uid.as_deref().unwrap_or_default());
    prepare_propagation(&tools, &mounts, &directory)?;
    let container = &container.name;
    match View::new(tools, &directory.join(format!(".view-{container}")), mounts, options) {
        Ok(view) => Ok(Some(Arc::new(view))),
        Err(error) => {
            tracing::warn!(%error, container, "a container doesn't have its volumes at their mount paths");
            Ok(None)
        }
    }
}

/// Prepares the host for the propagation of mounts between it and a container. The mounts of the view itself are not
/// propagated. The volumes in the pod's directory become shared mounts, so that what one of its containers mounts in
/// them is propagated to the others.
///
/// # Errors
/// If what a container mounts can't be seen on the host, with the message of container runtimes, or if the system
/// refuses it.
fn prepare_propagation(tools: &Tools, mounts: &[Mount], directory: &Path) -> Result<(), StartFailure> {
    let mut propagated = mounts.iter().filter(|mount| mount.propagation != Propagation::None).peekable();
    if !tools.can_propagate() || propagated.peek().is_none() {
        return Ok(());
    }
    let failed =
        |error: io::Error| StartFailure::Create(format!("failed to prepare the propagation of mounts: {error}"));
    mounts::bind_private(directory).map_err(failed)?;
    for Mount { source, propagation, .. } in propagated {
        if source.starts_with(directory) {
            mounts::bind_shared(source).map_err(failed)?;
        } else if *propagation == Propagation::Bidirectional
            && let Some(point) = mounts::private_mount_of(source).map_err(failed)?
        {
            let [source, point] = [source.as_path(), &point].map(|path| path.display().to_string());
            return Err(StartFailure::Create(format!(
                "path {source:?} is mounted on {point:?} but it is not a shared mount"
            )));
        }
    }
    Ok(())
}

/// Returns the processes that a container sees
/// (<https://kubernetes.io/docs/tasks/configure-pod-container/share-process-namespace/>): its own, those of its pod if
/// the containers of the pod share them, those of the container that an ephemeral container is meant for if it runs, or
/// those of the host.
async fn visible_processes(
    host: &NodeContext,
    pod: &Pod,
    container: &str,
    tools: &Tools,
    shared: &SharedProcesses,
) -> Result<VisibleProcesses, String> {
    let has = |setting: fn(&PodSpec) -> Option<bool>| pod.spec.as_ref().and_then(setting) == Some(true);
    if !host.isolates_containers || has(|spec| spec.host_pid) {
        return Ok(VisibleProcesses::Host);
    }
    if has(|spec| spec.share_process_namespace) {
        return shared.get(tools, &host.processes).await;
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let target = spec::target(pod, container).and_then(|target| {
        let name = [text(&pod.metadata.namespace), text(&pod.metadata.name), target.to_owned()];
        host.containers.find(&name, pod.metadata.uid.as_deref()?)?.line.container
    });
    Ok(target.map_or(VisibleProcesses::Own, VisibleProcesses::of))
}

/// Returns what shows volumes at their mount paths; `None` if the host has no mount namespaces.
pub(super) async fn tools(host: &NodeContext) -> Option<Arc<Tools>> {
    host.view_tools.get_or_init(|| find_tools(host)).await.clone()
}

async fn find_tools(host: &NodeContext) -> Option<Arc<Tools>> {
    let (folder, isolated) = (host.directory.join(TRIAL), host.isolates_containers);
    let found = tokio::task::spawn_blocking(move || Tools::find(&folder, isolated)).await;
    let found = found.unwrap_or_else(|error| Err(error.to_string()));
    let note = match &found {
        Ok(_) => "true".to_owned(),
        Err(why) => {
            tracing::warn!(
                why,
                "containers have their volumes below $KUBEWRIGHT_ROOT only: mount namespaces don't work here"
            );
            format!("false: {why}")
        }
    };
    let node = ObjectPath::core("nodes", None, NODE_NAME);
    let patch = serde_json::json!({"metadata": {"annotations": {ANNOTATION: note}}});
    if let Err(error) = host.client.merge(&node, "", &patch).await {
        tracing::debug!(%error, "failed to annotate the node");
    }
    found.ok().map(Arc::new)
}
