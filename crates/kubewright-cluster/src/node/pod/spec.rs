//! The containers of a pod's spec.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, PodSpec};

use super::container::Role;

/// Returns a pod's containers in the order of their start, with their roles.
pub(crate) fn containers(pod: &Pod) -> impl Iterator<Item = (Cow<'_, Container>, Role)> {
    let spec = pod.spec.iter();
    let init = spec.clone().flat_map(|spec| spec.init_containers.iter().flatten()).map(|container| {
        let role = if container.restart_policy.as_deref() == Some("Always") { Role::Sidecar } else { Role::Init };
        (Cow::Borrowed(container), role)
    });
    let main = spec.clone().flat_map(|spec| &spec.containers).map(|container| (Cow::Borrowed(container), Role::Main));
    let ephemeral = spec.flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    init.chain(main).chain(ephemeral.map(|container| (Cow::Owned(as_container(container)), Role::Ephemeral)))
}

/// Returns a container of a pod.
pub(crate) fn find<'a>(pod: &'a Pod, name: &str) -> Option<Cow<'a, Container>> {
    containers(pod).map(|(container, _)| container).find(|container| container.name == name)
}

/// Returns the field of a pod that has a container, as events name it: `spec.containers{main}`.
pub(crate) fn field_path(pod: &Pod, name: &str) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let among = |list: &[Container]| list.iter().any(|container| container.name == name);
    let list = if among(&spec.containers) {
        "containers"
    } else if spec.init_containers.as_deref().is_some_and(among) {
        "initContainers"
    } else {
        ephemeral(pod, name).map(|_| "ephemeralContainers")?
    };
    Some(format!("spec.{list}{{{name}}}"))
}

/// Returns the name of the container that an ephemeral container is meant for.
pub(crate) fn target<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    ephemeral(pod, name)?.target_container_name.as_deref().filter(|target| !target.is_empty())
}

/// Returns whether a container has a PID namespace of its own in Kubernetes.
pub(crate) fn has_pid_namespace(pod: &Pod, name: &str) -> bool {
    let is_shared = |spec: &PodSpec| spec.host_pid == Some(true) || spec.share_process_namespace == Some(true);
    !pod.spec.as_ref().is_some_and(is_shared) && target(pod, name).is_none()
}

fn ephemeral<'a>(pod: &'a Pod, name: &str) -> Option<&'a EphemeralContainer> {
    pod.spec.as_ref()?.ephemeral_containers.iter().flatten().find(|container| container.name == name)
}

/// Returns an ephemeral container as a container without what it can't have.
fn as_container(container: &EphemeralContainer) -> Container {
    let own = container.clone();
    Container {
        args: own.args,
        command: own.command,
        env: own.env,
        env_from: own.env_from,
        image: own.image,
        image_pull_policy: own.image_pull_policy,
        name: own.name,
        security_context: own.security_context,
        stdin: own.stdin,
        stdin_once: own.stdin_once,
        termination_message_path: own.termination_message_path,
        termination_message_policy: own.termination_message_policy,
        tty: own.tty,
        volume_devices: own.volume_devices,
        volume_mounts: own.volume_mounts,
        working_dir: own.working_dir,
        ..Container::default()
    }
}
