//! Waiting until a Deployment is ready, or until it is clear that it won't be.

use anyhow::{Result, bail};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{ContainerStatus, Pod},
};
use kube::{Api, ResourceExt, api::ListParams};

use super::{
    Remote, Wait,
    failure::{explain, is_transient},
    report,
};

/// What Deployments and their ReplicaSets are numbered by.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// How far a Deployment is.
#[derive(Debug, PartialEq, Eq)]
enum Rollout {
    Ready,
    Going(String),
    Failed(String),
}

/// What keeps a pod from being ready.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// As Kubernetes names it, with its words.
    pub(super) why: String,
    /// What to do.
    pub(super) remedy: &'static str,
    /// Whether it is not worth waiting for it to pass.
    is_lasting: bool,
}

/// Waits until all replicas of a Deployment are up to date and available.
pub(crate) async fn ready(remote: &Remote, namespace: &str, name: &str, wait: &Wait<'_>) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(remote.client.clone(), namespace);
    loop {
        let deployment = match deployments.get(name).await {
            Ok(deployment) => Some(deployment),
            Err(error) if is_transient(&error) => None,
            Err(error) => bail!("look at deployment {name} in {namespace}: {}", explain(&error)),
        };
        let state = deployment.as_ref().map_or_else(|| Rollout::Going("no answer".into()), rollout);
        if state == Rollout::Ready {
            return Ok(());
        }
        let pods = match &deployment {
            // Who may not see pods is told what the Deployment says.
            Some(deployment) => pods_of(remote, deployment).await.unwrap_or_default(),
            None => Vec::new(),
        };
        let trouble = pods.iter().filter_map(trouble).max_by_key(|trouble| trouble.is_lasting);
        let (why, is_over) = verdict(state, trouble.as_ref());
        if is_over || !wait.goes_on(&format!("deployment {name}: {}", short(&why))).await {
            let late = if is_over { String::new() } else { format!(" after {}", wait.spent()) };
            let report = match &deployment {
                Some(deployment) => report::of(remote, deployment, &pods, trouble.as_ref()).await,
                None => String::new(),
            };
            bail!("deployment {name} in {namespace} is not ready{late}: {why}{report}");
        }
    }
}

/// Why it isn't ready, and whether waiting is over.
fn verdict(state: Rollout, trouble: Option<&Trouble>) -> (String, bool) {
    const ORPHAN: &str = "failed calling webhook";
    match (state, trouble) {
        (Rollout::Going(what), None) if what.contains(ORPHAN) => {
            let remedy =
                "until the operator is there nobody answers: delete that webhook configuration, and deploy again";
            (format!("{what}; {remedy}"), false)
        }
        (Rollout::Failed(why), _) => (why, true),
        (_, Some(trouble)) if trouble.is_lasting => (trouble.why.clone(), true),
        (Rollout::Going(what), Some(trouble)) => (format!("{what}: {}", trouble.why), false),
        (Rollout::Going(what), None) => (what, false),
        (Rollout::Ready, _) => (String::new(), false),
    }
}

/// As `kubectl rollout status` sees it.
fn rollout(deployment: &Deployment) -> Rollout {
    let Some(status) = &deployment.status else { return Rollout::Going("nobody has seen it yet".into()) };
    if deployment.metadata.generation > status.observed_generation {
        return Rollout::Going("nobody has seen it yet".into());
    }
    let condition = |kind: &str, status: &str| {
        deployment
            .status
            .iter()
            .flat_map(|it| it.conditions.iter().flatten())
            .find(|it| it.type_ == kind && it.status == status)
    };
    let message =
        |condition: &k8s_openapi::api::apps::v1::DeploymentCondition| condition.message.clone().unwrap_or_default();
    if let Some(late) =
        condition("Progressing", "False").filter(|it| it.reason.as_deref() == Some("ProgressDeadlineExceeded"))
    {
        return Rollout::Failed(message(late));
    }
    if let Some(failure) = condition("ReplicaFailure", "True") {
        return Rollout::Going(message(failure));
    }
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let count = |replicas: Option<i32>| replicas.unwrap_or(0);
    let (updated, available) = (count(status.updated_replicas), count(status.available_replicas));
    match count(status.replicas) - updated {
        _ if updated < wanted => Rollout::Going(format!("{updated} of {wanted} replicas are up to date")),
        old if old > 0 => Rollout::Going(format!("{old} old replicas are still there")),
        _ if available < updated => Rollout::Going(format!("{available} of {updated} replicas are available")),
        _ => Rollout::Ready,
    }
}

/// The pods of the latest revision.
async fn pods_of(remote: &Remote, deployment: &Deployment) -> Result<Vec<Pod>, kube::Error> {
    let namespace = deployment.namespace().unwrap_or_default();
    let labels = deployment.spec.iter().flat_map(|spec| spec.selector.match_labels.iter().flatten());
    let labels: Vec<_> = labels.map(|(name, value)| format!("{name}={value}")).collect();
    let chosen = ListParams::default().labels(&labels.join(","));
    let sets = Api::<ReplicaSet>::namespaced(remote.client.clone(), &namespace).list(&chosen).await?;
    let latest = deployment.annotations().get(REVISION);
    let is_latest = |set: &ReplicaSet| is_child(set, deployment) && set.annotations().get(REVISION) == latest;
    let Some(set) = sets.items.into_iter().find(is_latest) else { return Ok(Vec::new()) };
    let pods = Api::<Pod>::namespaced(remote.client.clone(), &namespace).list(&chosen).await?;
    Ok(pods.items.into_iter().filter(|pod| is_child(pod, &set)).collect())
}

fn is_child(child: &impl ResourceExt, parent: &impl ResourceExt) -> bool {
    child.owner_references().iter().any(|owner| Some(&owner.uid) == parent.meta().uid.as_ref())
}

/// What is wrong with a pod, the worst first.
fn trouble(pod: &Pod) -> Option<Trouble> {
    let status = pod.status.as_ref()?;
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let worst = containers.filter_map(waits).max_by_key(|trouble| trouble.is_lasting);
    worst.or_else(|| {
        let placed =
            status.conditions.iter().flatten().find(|it| it.type_ == "PodScheduled" && it.status == "False")?;
        let why = format!("{}: {}", placed.reason.as_deref()?, placed.message.as_deref().unwrap_or_default());
        Some(Trouble { why, remedy: "no node takes the pod", is_lasting: false })
    })
}

/// What a container waits for, if it is more than its turn.
fn waits(container: &ContainerStatus) -> Option<Trouble> {
    const IMAGE: &str =
        "is the image in the registry (kubewright image --tag IMAGE --push), and may the cluster pull it?";
    const SPEC: &str = "mend config/manager";
    const END: &str = "its log says why it ended";
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref()?;
    let (remedy, is_lasting) = match reason {
        "ContainerCreating" | "PodInitializing" => return None,
        "ErrImagePull" | "RegistryUnavailable" => (IMAGE, false),
        "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName" => (IMAGE, true),
        "CreateContainerConfigError" | "CreateContainerError" => (SPEC, true),
        // Who ends once may have come too early for something.
        "CrashLoopBackOff" => (END, container.restart_count > 0),
        _ => (END, false),
    };
    let why = format!("{reason}: {}", waiting.message.as_deref().unwrap_or_default());
    Some(Trouble { why, remedy, is_lasting })
}

/// A line for the progress.
fn short(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn deployment(status: Value) -> Deployment {
        let spec = json!({"replicas": 2, "selector": {}, "template": {}});
        let object = json!({"metadata": {"generation": 3}, "spec": spec, "status": status});
        serde_json::from_value(object).unwrap()
    }

    fn going(what: &str) -> Rollout {
        Rollout::Going(what.into())
    }

    #[test]
    fn a_deployment_is_ready_when_all_new_replicas_are_and_no_other_is_left() {
        let check = |status: Value, expected: Rollout| {
            let mut all = json!({"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
            all.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
            assert_eq!(rollout(&deployment(all)), expected, "{status}");
        };
        check(json!({}), Rollout::Ready);
        check(json!({"observedGeneration": 2}), going("nobody has seen it yet"));
        check(json!({"updatedReplicas": 1}), going("1 of 2 replicas are up to date"));
        check(json!({"replicas": 3}), going("1 old replicas are still there"));
        check(json!({"availableReplicas": 0}), going("0 of 2 replicas are available"));
        let condition = |kind: &str, status: &str, reason: &str| json!({"conditions": [{"type": kind, "status": status, "reason": reason, "message": "why"}]});
        check(condition("Progressing", "False", "ProgressDeadlineExceeded"), Rollout::Failed("why".into()));
        check(condition("ReplicaFailure", "True", "FailedCreate"), going("why"));
        assert_eq!(rollout(&Deployment::default()), going("nobody has seen it yet"));
    }

    #[test]
    fn a_pod_that_will_not_come_is_not_waited_for() {
        let check = |reason: &str, restarts: i32, expected: Option<bool>| {
            let container = json!({
                "name": "manager", "image": "cow", "imageID": "", "ready": false, "restartCount": restarts,
                "state": {"waiting": {"reason": reason, "message": "why"}},
            });
            let pod = json!({"metadata": {}, "status": {"containerStatuses": [container]}});
            let found = trouble(&serde_json::from_value(pod).unwrap());
            assert_eq!(found.map(|trouble| trouble.is_lasting), expected, "{reason}");
        };
        check("ContainerCreating", 0, None);
        check("ErrImagePull", 0, Some(false));
        check("ImagePullBackOff", 0, Some(true));
        check("InvalidImageName", 0, Some(true));
        check("CrashLoopBackOff", 0, Some(false));
        check("CrashLoopBackOff", 1, Some(true));
        let placed = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"});
        let pod = json!({"metadata": {}, "status": {"conditions": [placed]}});
        let found = trouble(&serde_json::from_value(pod).unwrap()).unwrap();
        assert_eq!((found.why.as_str(), found.is_lasting), ("Unschedulable: full", false));
    }
}
