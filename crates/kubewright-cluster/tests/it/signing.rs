//! The certificates of signing requests.

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    certificates::v1::{CertificateSigningRequest, CertificateSigningRequestStatus},
};
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use kubewright_cluster::{Cluster, Endpoint};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;

use crate::{bare, wire};

/// Requests a certificate of a client for a new key, approves the request, and returns the key and the status with the
/// result.
async fn request(cluster: &Cluster, usage: &str) -> (KeyPair, CertificateSigningRequestStatus) {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "dev");
    params.distinguished_name.push(DnType::CommonName, "jane");
    let key = KeyPair::generate().expect("a key");
    let pem = params.serialize_request(&key).expect("a request").pem().expect("PEM");
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
