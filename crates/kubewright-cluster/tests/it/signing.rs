//! The certificates of signing requests.

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    certificates::v1::{CertificateSigningRequest, CertificateSigningRequestStatus},
    core::v1::Node,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use kubewright_apiserver::UserInfo;
use kubewright_cluster::{AuthorizationMode, Cluster, ClusterBuilder, Endpoint, Pods};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;

use crate::{bare, wire};

/// Returns a new key, and a request of a certificate for it.
fn signed(organization: &str, name: &str) -> (KeyPair, String) {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().expect("a key");
    let pem = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    (key, pem)
}

/// Requests a certificate of a client for a new key, approves the request, and returns the key and the status with the
/// result.
async fn request(cluster: &Cluster, usage: &str) -> (KeyPair, CertificateSigningRequestStatus) {
    let (key, pem) = signed("dev", "jane");
    let object = json!({
        "metadata": {"name": "jane"},
        "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client", "usages": [usage], "request": STANDARD.encode(pem),
        },
    });
    let requests = Api::<CertificateSigningRequest>::all(cluster.client());
    let object = serde_json::from_value(object).expect("a request");
    requests.create(&PostParams::default(), &object).await.expect("created");
    let approved = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]}});
    requests.patch_approval("jane", &PatchParams::default(), &Patch::Merge(approved)).await.expect("approved");
    let status = |request: &CertificateSigningRequest| request.status.clone().unwrap_or_default();
    let is_done = |request: &&CertificateSigningRequest| {
        let CertificateSigningRequestStatus { certificate, conditions } = status(request);
        certificate.is_some() || conditions.is_some_and(|conditions| conditions.len() > 1)
    };
    let found = cluster.expect(|all: &[&CertificateSigningRequest]| all.iter().any(is_done)).await.expect("an answer");
    (key, status(&found[0]))
}

/// Returns a client of a listener with a certificate.
async fn client(endpoint: &Endpoint, certificate: &[u8], key: &KeyPair) -> Client {
    let mut kubeconfig = Kubeconfig::from_yaml(&endpoint.kubeconfig()).expect("a kubeconfig");
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().expect("a user");
    user.client_certificate_data = Some(STANDARD.encode(certificate));
    user.client_key_data = Some(STANDARD.encode(key.serialize_pem()).into());
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a config");
    Client::try_from(config).expect("a client")
}

#[tokio::test]
async fn nodes_are_authorized_and_restricted_by_default() {
    let kubelet = || UserInfo::new("system:node:a", ["system:nodes", "system:authenticated"]);
    for (is_default, allowed, other) in [(true, 404, 403), (false, 403, 403)] {
        let builder = Cluster::builder().pods(Pods::None);
        let by_roles = |builder: ClusterBuilder| builder.authorization_modes([AuthorizationMode::Rbac]);
        let builder = if is_default { builder } else { by_roles(builder).node_restriction(false) };
        let cluster = builder.start().await.unwrap();
        let nodes: Api<Node> = Api::all(cluster.api().client_of(kubelet()));
        let code = |result: kube::Result<Node>| match result {
            Err(kube::Error::Api(status)) => status.code,
            other => panic!("{other:?}"),
        };
        assert_eq!(code(nodes.get("a").await), allowed);
        let another = serde_json::from_value(json!({"metadata": {"name": "b"}})).unwrap();
        assert_eq!(code(nodes.create(&Default::default(), &another).await), other);
        let own = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
        assert_eq!(nodes.create(&Default::default(), &own).await.is_ok(), is_default);
        cluster.shutdown().await;
    }
}

#[tokio::test]
async fn a_signed_certificate_logs_its_user_in_at_every_listener() {
    let cluster = bare().await;
    let before = wire::listen(&cluster).await;
    let (key, status) = request(&cluster, "client auth").await;
    let certificate = status.certificate.expect("a certificate").0;
    let after = wire::listen(&cluster).await;
    for endpoint in [before, after] {
        let reviews = Api::<SelfSubjectReview>::all(client(&endpoint, &certificate, &key).await);
        let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.expect("logged in");
        let user = review.status.and_then(|status| status.user_info).expect("a user");
        assert_eq!(user.username.as_deref(), Some("jane"));
        assert_eq!(user.groups, Some(vec!["dev".into(), "system:authenticated".into()]));
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_request_that_the_signer_does_not_sign_fails() {
    let cluster = bare().await;
    let (_, status) = request(&cluster, "server auth").await;
    assert!(status.certificate.is_none());
    let conditions = status.conditions.unwrap_or_default();
    let failed = conditions.iter().find(|condition| condition.type_ == "Failed").expect("a failure");
    assert_eq!(failed.reason.as_deref(), Some("SignerValidationFailure"));
    assert_eq!(failed.message.as_deref(), Some("invalid usage for client certificate: server auth"));
    cluster.shutdown().await;
}

#[tokio::test]
async fn nodes_get_their_certificates_if_their_requesters_may() {
    let cluster = bare().await;
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    let request = |name: &str| {
        let object = json!({
            "metadata": {"name": name},
            "spec": {
                "signerName": signer, "usages": ["digital signature", "client auth"],
                "request": STANDARD.encode(signed("system:nodes", "system:node:n").1),
            },
        });
        serde_json::from_value::<CertificateSigningRequest>(object).expect("a request")
    };
    let rules =
        json!({"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create"]});
    let bind = async |name: &str, group: &str| {
        let binding = json!({
            "metadata": {"name": group}, "roleRef": {"kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "Group", "name": group}],
        });
        let binding = serde_json::from_value::<ClusterRoleBinding>(binding).expect("a binding");
        Api::all(cluster.client()).create(&PostParams::default(), &binding).await.expect("bound");
    };
    let requesters = json!({"metadata": {"name": "requesters"}, "rules": [rules]});
    let requesters: ClusterRole = serde_json::from_value(requesters).expect("a role");
    Api::all(cluster.client()).create(&PostParams::default(), &requesters).await.expect("created");
    bind("requesters", "system:authenticated").await;
    let node = UserInfo::new("system:node:n", ["system:nodes", "system:authenticated"]);
    let stranger = UserInfo::new("jane", ["system:authenticated"]);
    for (name, user) in [("node", node), ("stranger", stranger)] {
        let requests = Api::all(cluster.api().client_of(user));
        requests.create(&PostParams::default(), &request(name)).await.expect("created");
    }
    bind("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes").await;
    let is_issued = |request: &&CertificateSigningRequest| {
        request.status.as_ref().is_some_and(|status| status.certificate.is_some())
    };
    let found = cluster.expect(|all: &[&CertificateSigningRequest]| all.iter().any(is_issued)).await.expect("issued");
    let issued: Vec<_> = found.iter().filter(is_issued).map(|request| request.metadata.name.as_deref()).collect();
    assert_eq!(issued, [Some("node")]);
    let conditions = found.iter().find(is_issued).and_then(|request| request.status.clone()?.conditions);
    let approved = conditions.expect("conditions").remove(0);
    assert_eq!((&*approved.type_, approved.reason.as_deref()), ("Approved", Some("AutoApproved")));
    let message = "Auto approving self kubelet client certificate after SubjectAccessReview.";
    assert_eq!(approved.message.as_deref(), Some(message));
    cluster.shutdown().await;
}
