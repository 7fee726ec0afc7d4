//! The names under which the parts of the cluster send requests, as in a cluster that kubeadm has set up: the built-in
//! controllers act as their service accounts in `kube-system` (`--use-service-account-credentials`), the node as
//! `system:node:NAME`.
//!
//! Roles don't limit them; the names are what webhooks, admission policies and extension API servers see.

use kubewright_apiserver::{ApiServer, UserInfo};

use crate::{controllers::selection::Controllers, node::NODE_NAME};

/// The component that the built-in controllers belong to.
pub(crate) const CONTROLLER_MANAGER: &str = "kube-controller-manager";
/// The publisher of the ConfigMaps `kube-root-ca.crt`, which is a part of `serviceaccount-controller` here.
pub(crate) const CERTIFICATE_PUBLISHER: &str = "root-ca-cert-publisher";
/// What deletes the objects of a custom kind that is being deleted. It is a part of Kubernetes' API server, which
/// deletes them in its storage, without admission: an operator that is gone can't refuse it by its webhooks.
pub(crate) const KIND_TERMINATOR: &str = "crd-finalizer";
/// The namespace of the accounts.
pub(crate) const NAMESPACE: &str = "kube-system";

/// The controller of the tokens of service accounts in Secrets.
const TOKENS: &str = "serviceaccount-token-controller";

/// The group of all service accounts, nodes and other users.
const AUTHENTICATED: &str = "system:authenticated";

/// Returns the in-process client of a component, such as `kubelet`, or of a controller, such as `job-controller`.
pub(crate) fn client(api: &ApiServer, component: &str) -> kube::Client {
    let system = |name: &str| UserInfo::new(format!("system:{name}"), [AUTHENTICATED]);
    let server = || UserInfo::new("system:apiserver", ["system:masters", AUTHENTICATED]);
    let (user_agent, user) = match component {
        "kubelet" => (component, UserInfo::new(format!("system:node:{NODE_NAME}"), ["system:nodes", AUTHENTICATED])),
        "kube-proxy" => (component, UserInfo::service_account(NAMESPACE, component)),
        "kube-scheduler" | "default-scheduler" => ("kube-scheduler", system("kube-scheduler")),
        "kube-apiserver" => (component, server()),
        KIND_TERMINATOR => ("kube-apiserver", server().without_admission()),
        CONTROLLER_MANAGER | TOKENS => (CONTROLLER_MANAGER, system(CONTROLLER_MANAGER)),
        _ => match account(component) {
            Some(name) => (CONTROLLER_MANAGER, UserInfo::service_account(NAMESPACE, name)),
            None => (component, UserInfo::admin()),
        },
    };
    api.client_as(user_agent, user.unrestricted())
}

/// Returns the service account of a controller. Some controllers share one, and many have another name than their
/// controller.
fn account(controller: &str) -> Option<&str> {
    Some(match controller {
        "certificatesigningrequest-approving-controller"
        | "certificatesigningrequest-cleaner-controller"
        | "certificatesigningrequest-signing-controller" => "certificate-controller",
        "daemonset-controller" => "daemon-set-controller",
        "garbage-collector-controller" => "generic-garbage-collector",
        "horizontal-pod-autoscaler-controller" => "horizontal-pod-autoscaler",
        "persistentvolume-binder-controller" => "persistent-volume-binder",
        "pod-garbage-collector-controller" => "pod-garbage-collector",
        // This controller protects claims, too.
        "persistentvolume-protection-controller" => "pvc-protection-controller",
        "replicationcontroller-controller" => "replication-controller",
        "resourceclaim-controller" => "resource-claim-controller",
        "service-cidr-controller" => "service-cidrs-controller",
        "serviceaccount-controller" => "service-account-controller",
        "node-lifecycle-controller" | "taint-eviction-controller" => "node-controller",
        // It has no account of its own.
        TOKENS => return None,
        CERTIFICATE_PUBLISHER => controller,
        _ if Controllers::NAMES.contains(&controller) => controller,
        _ => return None,
    })
}

/// Returns the service accounts of these controllers, in order.
pub(crate) fn accounts(controllers: &Controllers) -> Vec<&'static str> {
    let selected = Controllers::NAMES.into_iter().filter(|name| controllers.contains(name));
    let publisher = controllers.contains("serviceaccount-controller").then_some(CERTIFICATE_PUBLISHER);
    let mut accounts: Vec<_> = selected.chain(publisher).filter_map(account).collect();
    accounts.sort_unstable();
    accounts.dedup();
    accounts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_have_the_accounts_of_kubernetes() {
        let all = accounts(&Controllers::all());
        assert!(all.is_sorted() && all.len() == 28, "{all:?}");
        for known in ["certificate-controller", "daemon-set-controller", "job-controller", "root-ca-cert-publisher"] {
            assert!(all.contains(&known), "{known}");
        }
        assert_eq!(accounts(&"daemonset-controller".parse().unwrap()), ["daemon-set-controller"]);
        assert_eq!(accounts(&Controllers::none()), [""; 0]);
    }
}
