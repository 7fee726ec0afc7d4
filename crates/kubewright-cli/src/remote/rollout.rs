//! Waiting until a Deployment is ready, or until it is certain that it will not become ready.

use anyhow::{Result, bail};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use kube::{Api, ResourceExt, api::ListParams};

use super::{
    Remote, Wait,
    failure::{explain, is_transient},
    problem::{PodProblem, problem},
    report,
};

/// The annotation with the revision of a Deployment and its ReplicaSets.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// The state of a rollout.
#[derive(Debug, PartialEq, Eq)]
enum Rollout {
    Ready,
    Progressing(String),
    Failed(String),
}

/// Waits until all replicas of a Deployment are up to date and available. The advice ends the report if they do not
/// become so.
pub(crate) async fn ready(remote: &Remote, namespace: &str, name: &str, advice: &str, wait: &Wait<'_>) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(remote.client.clone(), namespace);
    loop {
        let deployment = match deployments.get(name).await {
            Ok(deployment) => Some(deployment),
            Err(error) if is_transient(&error) => None,
            Err(error) => bail!("get deployment {name} in {namespace}: {}", explain(&error)),
        };
        let state =
            deployment.as_ref().map_or_else(|| Rollout::Progressing("no answer from the API server".into()), rollout);
        if state == Rollout::Ready {
            return Ok(());
        }
        let pods = match &deployment {
            // Without the permission to list pods, only the status of the Deployment is used.
            Some(deployment) => pods_of(remote, deployment).await.unwrap_or_default(),
            None => Vec::new(),
        };
        let problem = pods.iter().filter_map(problem).max_by_key(|problem| problem.is_permanent);
        let (why, has_failed) = assess(state, problem.as_ref());
        if has_failed || !wait.poll_again(&format!("for deployment {name}: {}", first_line(&why))).await {
            let late = if has_failed { String::new() } else { format!(" after {}", wait.timeout()) };
            let report = match &deployment {
                Some(deployment) => report::diagnose(remote, deployment, &pods, problem.as_ref()).await,
                None => String::new(),
            };
            bail!("deployment {name} in {namespace} is not ready{late}: {why}{report}\n  {advice}");
        }
    }
}

/// Describes the pods of a Deployment that is not ready, with each line after a line break. What cannot be read is left
/// out.
pub(crate) async fn state_of(remote: &Remote, namespace: &str, name: &str) -> String {
    let deployments: Api<Deployment> = Api::namespaced(remote.client.clone(), namespace);
    let Ok(deployment) = deployments.get(name).await else { return String::new() };
    let (Rollout::Progressing(why) | Rollout::Failed(why)) = rollout(&deployment) else { return String::new() };
    let pods = pods_of(remote, &deployment).await.unwrap_or_default();
    let problem = pods.iter().filter_map(problem).max_by_key(|problem| problem.is_permanent);
    let report = report::diagnose(remote, &deployment, &pods, problem.as_ref()).await;
    format!("\n  deployment {name}: {why}{report}")
}

/// Returns the reason why the Deployment is not ready, and whether it will never become ready.
fn assess(state: Rollout, problem: Option<&PodProblem>) -> (String, bool) {
    const WEBHOOK_FAILURE: &str = "failed calling webhook";
    match (state, problem) {
        (Rollout::Progressing(what), None) if what.contains(WEBHOOK_FAILURE) => {
            let hint = "no operator is running to answer it: delete the webhook configuration and deploy again";
            (format!("{what}; {hint}"), false)
        }
        (Rollout::Failed(why), _) => (why, true),
        (_, Some(problem)) if problem.is_permanent => (problem.reason.clone(), true),
        (Rollout::Progressing(what), Some(problem)) => (format!("{what}: {}", problem.reason), false),
        (Rollout::Progressing(what), None) => (what, false),
        (Rollout::Ready, _) => (String::new(), false),
    }
}

/// Returns the state of a rollout, according to the rules of `kubectl rollout status`.
fn rollout(deployment: &Deployment) -> Rollout {
    let Some(status) = &deployment.status else {
        return Rollout::Progressing("not yet observed by the Deployment controller".into());
    };
    if deployment.metadata.generation > status.observed_generation {
        return Rollout::Progressing("not yet observed by the Deployment controller".into());
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
        return Rollout::Progressing(message(failure));
    }
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let count = |replicas: Option<i32>| replicas.unwrap_or(0);
    let (updated, available) = (count(status.updated_replicas), count(status.available_replicas));
    match count(status.replicas) - updated {
        _ if updated < wanted => Rollout::Progressing(format!("{updated} of {wanted} replicas are up to date")),
        old if old > 0 => Rollout::Progressing(format!("{old} old replicas are still running")),
        _ if available < updated => Rollout::Progressing(format!("{available} of {updated} replicas are available")),
        _ => Rollout::Ready,
    }
}

/// Returns the pods of the latest revision.
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

fn first_line(text: &str) -> &str {
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

    fn progressing(what: &str) -> Rollout {
        Rollout::Progressing(what.into())
    }

    #[test]
    fn a_deployment_is_ready_when_all_replicas_are_new_and_available() {
        let check = |status: Value, expected: Rollout| {
            let mut all = json!({"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
            all.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
            assert_eq!(rollout(&deployment(all)), expected, "{status}");
        };
        check(json!({}), Rollout::Ready);
        check(json!({"observedGeneration": 2}), progressing("not yet observed by the Deployment controller"));
        check(json!({"updatedReplicas": 1}), progressing("1 of 2 replicas are up to date"));
        check(json!({"replicas": 3}), progressing("1 old replicas are still running"));
        check(json!({"availableReplicas": 0}), progressing("0 of 2 replicas are available"));
        let condition = |kind: &str, status: &str, reason: &str| json!({"conditions": [{"type": kind, "status": status, "reason": reason, "message": "why"}]});
        check(condition("Progressing", "False", "ProgressDeadlineExceeded"), Rollout::Failed("why".into()));
        check(condition("ReplicaFailure", "True", "FailedCreate"), progressing("why"));
        assert_eq!(rollout(&Deployment::default()), progressing("not yet observed by the Deployment controller"));
    }
}
