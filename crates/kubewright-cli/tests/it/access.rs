//! Authorization and authentication with stock kubectl: roles, tokens, impersonation, and pods that use the API.

use crate::cluster::TestCluster;

const ROBOT: &str = "--as=system:serviceaccount:default:robot";

#[test]
fn roles_grant_and_deny_with_a_message() {
    let cluster = TestCluster::start(&["--pods", "simulate"]);
    cluster.kubectl(&["create", "serviceaccount", "robot"]);
    let said = cluster.kubectl_fails(&["get", "pods", ROBOT]);
    let expect = "Error from server (Forbidden): pods is forbidden: User \"system:serviceaccount:default:robot\" cannot \
                  list resource \"pods\" in API group \"\" in the namespace \"default\"";
    assert!(said.contains(expect), "{said}");
    assert_eq!(cluster.try_kubectl(&["auth", "can-i", "list", "pods", ROBOT]).stdout, b"no\n");
    cluster.kubectl(&["create", "role", "reader", "--verb=get,list", "--resource=pods,pods/log"]);
    cluster.kubectl(&["create", "rolebinding", "reads", "--role=reader", "--serviceaccount=default:robot"]);
    assert_eq!(cluster.kubectl(&["auth", "can-i", "list", "pods", ROBOT]), "yes\n");
    assert_eq!(cluster.kubectl(&["auth", "can-i", "get", "pods", "--subresource=log", ROBOT]), "yes\n");
    assert_eq!(cluster.try_kubectl(&["auth", "can-i", "delete", "pods", ROBOT]).stdout, b"no\n");
    assert_eq!(cluster.kubectl(&["auth", "can-i", "*", "*"]), "yes\n");
    let list = cluster.kubectl(&["auth", "can-i", "--list", ROBOT]);
    assert!(list.lines().any(|line| line.starts_with("pods/log ") && line.contains("[get list]")), "{list}");
    assert!(list.contains("selfsubjectaccessreviews.authorization.k8s.io"), "{list}");
    cluster.kubectl(&["get", "pods", ROBOT]);

    // Aggregated rules apply to the subjects of the aggregating role.
    cluster.kubectl(&["create", "rolebinding", "views", "--clusterrole=view", "--serviceaccount=default:robot"]);
    assert_eq!(cluster.try_kubectl(&["auth", "can-i", "list", "leases", ROBOT]).stdout, b"no\n");
    let part = r#"{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "see-leases", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]}]}"#;
    cluster.kubectl(&["apply", "-f", &cluster.file("part.json", part)]);
    cluster.kubectl_until(&["get", "clusterrole", "view", "-o", "yaml"], |role| role.contains("leases"));
    assert_eq!(cluster.kubectl(&["auth", "can-i", "list", "leases", ROBOT]), "yes\n");
}

#[test]
fn a_token_authenticates_as_its_service_account() {
    let cluster = TestCluster::start(&["--pods", "simulate"]);
    cluster.kubectl(&["create", "serviceaccount", "robot"]);
    // kubectl 1.24 and newer have a command for this, which uses protobuf.
    let token = if cluster.try_kubectl(&["create", "token", "--help"]).status.success() {
        cluster.kubectl(&["create", "token", "robot", "--duration=20m"]).trim().to_owned()
    } else {
        let request = "{\"kind\":\"TokenRequest\",\"apiVersion\":\"authentication.k8s.io/v1\",\"spec\":{}}";
        let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
        let answer = cluster.kubectl(&["create", "--raw", path, "-f", &cluster.file("request.json", request)]);
        answer.split("\"token\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
    };
    cluster.kubectl(&["config", "set-credentials", "robot", &format!("--token={token}")]);
    let said = cluster.kubectl_fails(&["get", "secrets", "--user=robot"]);
    assert!(said.contains("User \"system:serviceaccount:default:robot\" cannot list resource \"secrets\""), "{said}");
    cluster.kubectl(&["create", "rolebinding", "edits", "--clusterrole=edit", "--serviceaccount=default:robot"]);
    cluster.kubectl(&["get", "secrets", "--user=robot"]);
    // A request with an invalid token is rejected, and not treated as anonymous.
    cluster.kubectl(&["config", "set-credentials", "robot", &format!("--token={token}x")]);
    let said = cluster.kubectl_fails(&["get", "secrets", "--user=robot"]);
    assert!(said.contains("Unauthorized") || said.contains("must be logged in"), "{said}");
}

#[test]
fn a_pod_uses_the_api_as_its_service_account() {
    let cluster = TestCluster::start(&["--pods", "run"]);
    let run = |name: &str, overrides: &str| {
        // Below the directory of the kubeconfig if the node can't mount volumes. Only then is the variable set.
        let script = "kubectl get pods -o name; ls ${KUBECONFIG%/*}/var/run/secrets/kubernetes.io/serviceaccount";
        let mut arguments = vec!["run", name, "--image=busybox", "--restart=Never"];
        if !overrides.is_empty() {
            arguments.push(overrides);
        }
        arguments.extend(["--", "sh", "-c", script]);
        cluster.kubectl(&arguments);
        cluster.kubectl_until(&["get", "pod", name, "-o", "jsonpath={.status.phase}"], |phase| {
            matches!(phase, "Succeeded" | "Failed")
        });
        cluster.kubectl(&["logs", name])
    };
    let denied = run("denied", "");
    let expect = "pods is forbidden: User \"system:serviceaccount:default:default\" cannot list resource \"pods\" in API \
                  group \"\" in the namespace \"default\"";
    assert!(denied.contains(expect), "{denied}");
    cluster.kubectl(&["create", "rolebinding", "views", "--clusterrole=view", "--serviceaccount=default:default"]);
    let allowed = run("allowed", "");
    assert!(allowed.contains("pod/allowed") && allowed.ends_with("ca.crt\nnamespace\ntoken\n"), "{allowed}");
    let without = run("without", "--overrides={\"spec\":{\"automountServiceAccountToken\":false}}");
    assert!(!without.contains("pod/allowed") && !without.contains("token"), "{without}");
}
