//! The reason why a pod is not ready. Pure.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

/// The reason why a pod is not ready.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PodProblem {
    /// The reason and the message from its status.
    pub(super) reason: String,
    pub(super) hint: &'static str,
    /// Whether the problem is permanent.
    pub(super) is_permanent: bool,
}

/// Returns the most severe problem of a pod.
pub(super) fn problem(pod: &Pod) -> Option<PodProblem> {
    let status = pod.status.as_ref()?;
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let worst = containers.filter_map(container_problem).max_by_key(|problem| problem.is_permanent);
    worst.or_else(|| {
        let unscheduled =
            status.conditions.iter().flatten().find(|it| it.type_ == "PodScheduled" && it.status == "False")?;
        let message = unscheduled.message.as_deref().unwrap_or_default();
        let reason = format!("{}: {message}", unscheduled.reason.as_deref()?);
        Some(PodProblem { reason, hint: "no node accepts the pod", is_permanent: false })
    })
}

/// Returns the problem of a waiting container, unless it is merely starting.
fn container_problem(container: &ContainerStatus) -> Option<PodProblem> {
    const IMAGE: &str = "check that the image is in the registry (kubewright image --tag IMAGE --push) and that the cluster may pull it";
    const SPEC: &str = "correct the manifests in config/manager";
    const EXIT: &str = "see its log for the reason";
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref()?;
    let (hint, is_permanent) = match reason {
        "ContainerCreating" | "PodInitializing" => return None,
        "ErrImagePull" | "RegistryUnavailable" => (IMAGE, false),
        "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName" => (IMAGE, true),
        "CreateContainerConfigError" | "CreateContainerError" => (SPEC, true),
        // The first exit may be due to a dependency that is not ready yet.
        "CrashLoopBackOff" => (EXIT, container.restart_count > 0),
        _ => (EXIT, false),
    };
    let reason = format!("{reason}: {}", waiting.message.as_deref().unwrap_or_default());
    Some(PodProblem { reason, hint, is_permanent })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn problems_that_do_not_pass_are_permanent() {
        let check = |reason: &str, restarts: i32, expected: Option<bool>| {
            let container = json!({
                "name": "manager", "image": "cow", "imageID": "", "ready": false, "restartCount": restarts,
                "state": {"waiting": {"reason": reason, "message": "why"}},
            });
            let pod = json!({"metadata": {}, "status": {"containerStatuses": [container]}});
            let found = problem(&serde_json::from_value(pod).unwrap());
            assert_eq!(found.map(|problem| problem.is_permanent), expected, "{reason}");
        };
        check("ContainerCreating", 0, None);
        check("ErrImagePull", 0, Some(false));
        check("ImagePullBackOff", 0, Some(true));
        check("InvalidImageName", 0, Some(true));
        check("CrashLoopBackOff", 0, Some(false));
        check("CrashLoopBackOff", 1, Some(true));
        let placed = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"});
        let pod = json!({"metadata": {}, "status": {"conditions": [placed]}});
        let found = problem(&serde_json::from_value(pod).unwrap()).unwrap();
        assert_eq!((found.reason.as_str(), found.is_permanent), ("Unschedulable: full", false));
    }
}
