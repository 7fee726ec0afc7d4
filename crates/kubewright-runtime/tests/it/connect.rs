//! The errors of an operator that can't reach its cluster, or lacks permissions there, through a kubeconfig and a
//! socket.

use clap::Parser;
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{Api, api::PostParams, config::Kubeconfig};
use kubewright_apiserver::{ApiServer, ListenOptions};
use kubewright_runtime::{args::ManagerArgs, controller::Controller, manager::Manager};
use serde_json::{Value, json};

use crate::{
    faults::{Idle, page},
    world::{log, run, until},
};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    manager: ManagerArgs,
}

/// Parses a kubeconfig into a value that can be modified.
fn opened(kubeconfig: &str) -> Value {
    serde_json::to_value(Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig")).expect("json")
}

/// Runs an operator that watches config maps until the readiness check of its caches contains the expected texts.
async fn until_reported(kubeconfig: &Value, expected: &[&str]) {
    log();
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), kubeconfig.to_string()).expect("it is written");
    let path = file.path().to_str().expect("a path");
    let flags = ["--log-level=off", "--health-probe-bind-address=0", "--metrics-bind-address=0", "--kubeconfig", path];
    let program = Program::try_parse_from([&["operator"], &flags[..]].concat()).expect("flags");
    let manager = Manager::with_args(program.manager).expect("a manager").controller(Controller::new(Idle::default()));
    let probes = manager.probes().clone();
    let running = run(manager);
    let page_text = parking_lot::Mutex::new(String::new());
    let says = async || {
        let page = page(&probes, "/readyz/caches").await;
        let is_reported = expected.iter().all(|part| page.contains(part));
        *page_text.lock() = page;
        is_reported
    };
    tokio::select! {
        () = until("the metrics contain it", &says) => {}
        () = tokio::time::sleep(std::time::Duration::from_secs(60)) => panic!("{}", page_text.lock()),
    }
    running.stop().await;
}

/// A recreated cluster has another certificate authority, while the kubeconfig still contains the old one.
#[tokio::test]
async fn a_kubeconfig_of_another_cluster_is_reported_as_such() {
    let (api, other) = (ApiServer::builder().build(), ApiServer::builder().build());
    let listener = api.listen(ListenOptions::default()).await.expect("it listens");
    let stranger = other.listen(ListenOptions::default()).await.expect("it listens");
    let mut kubeconfig = opened(&listener.kubeconfig());
    let mut authority = opened(&stranger.kubeconfig());
    let field = "/clusters/0/cluster/certificate-authority-data";
    *kubeconfig.pointer_mut(field).expect("an authority") = authority.pointer_mut(field).expect("an authority").take();
    let remedy = "the kubeconfig is for another cluster, or for an earlier one at this address";
    until_reported(&kubeconfig, &["configmaps: ", remedy]).await;
    listener.shutdown().await;
    stranger.shutdown().await;
}

/// As with an operator that was installed without its roles: the error names the missing permission, and the operator
/// continues once that is granted.
#[tokio::test]
async fn an_account_without_permissions_gets_the_missing_rules() {
    let api = ApiServer::builder().build();
    let listener = api.listen(ListenOptions::default()).await.expect("it listens");
    let accounts = Api::<ServiceAccount>::namespaced(api.client(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": "operator"}})).expect("an account");
    accounts.create(&PostParams::default(), &account).await.expect("accepted");
    let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}})).expect("a request");
    let token = accounts.create_token_request("operator", &PostParams::default(), &request).await.expect("a token");
    let mut kubeconfig = opened(&listener.kubeconfig());
    *kubeconfig.pointer_mut("/users/0/user").expect("a user") =
        json!({"token": token.status.expect("it is answered").token});
    let who = "User \"system:serviceaccount:default:operator\" cannot list resource \"configmaps\"";
    until_reported(&kubeconfig, &["configmaps: ", who, "grant list and watch to the operator's role"]).await;

    let role = json!({"metadata": {"name": "maps"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]});
    let binding = json!({
        "metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": "default"}],
    });
    let role: ClusterRole = serde_json::from_value(role).expect("a role");
    Api::all(api.client()).create(&PostParams::default(), &role).await.expect("accepted");
    let binding: ClusterRoleBinding = serde_json::from_value(binding).expect("a binding");
    Api::all(api.client()).create(&PostParams::default(), &binding).await.expect("accepted");
    until_reported(&kubeconfig, &["ok"]).await;
    listener.shutdown().await;
}
