use kubewright_apimachinery::certificate::Certificate;
use kubewright_apiserver::ApiServer;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use rustls::pki_types::CertificateDer;

use super::*;

pub(super) const NOW: &str = "2026-01-02T00:00:00Z";

pub(super) fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// Returns the content of a request of a subject for alternative names.
pub(super) fn content(organization: &str, name: &str, names: Vec<SanType>) -> String {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.distinguished_name = Default::default();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = names;
    let key = KeyPair::generate().expect("a key");
    STANDARD.encode(params.serialize_request(&key).expect("a request").pem().expect("PEM"))
}

pub(super) fn request(signer: &str, usages: &[&str], content: &str) -> Value {
    json!({
        "metadata": {"name": "r", "uid": "u", "resourceVersion": "7", "creationTimestamp": NOW},
        "spec": {"signerName": format!("kubernetes.io/{signer}"), "usages": usages, "request": content},
        "status": {"conditions": [{"type": "Approved", "status": "True", "lastUpdateTime": NOW}]},
    })
}

fn decide(request: &Value, now: &str) -> Plan {
    let mut controller = SigningRequests::new(ApiServer::builder().build().certificate_authority(), Random::seeded(1));
    let keys = learn(&mut controller.requests, &Arc::new(request.clone()), false);
    controller.decide(&keys[0], at(now))
}

/// Returns the status that is written for a request.
#[track_caller]
fn status(request: &Value) -> Value {
    let plan = decide(request, NOW);
    let [Step::Merge(address, "/status", patch)] = &plan.steps[..] else { panic!("{plan:?}") };
    assert_eq!((&address.namespace, address.name.as_str()), (&None, "r"));
    assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
    patch["status"].clone()
}

fn issued(request: &Value) -> Certificate {
    let pem = STANDARD.decode(text(&status(request), "/certificate")).expect("base64");
    Certificate::parse(&CertificateDer::from_pem_slice(&pem).expect("PEM")).expect("a certificate")
}

#[test]
fn an_approved_request_gets_its_certificate() {
    let names = vec![SanType::DnsName("a.example.com".try_into().expect("a name"))];
    let mut request = request("kube-apiserver-client", &["client auth"], &content("dev", "jane", names));
    let certificate = issued(&request);
    assert_eq!(certificate.subject, requested(&request).expect("a request").subject);
    assert_eq!(certificate.public_key_info, requested(&request).expect("a request").public_key_info);
    assert_eq!(certificate.not_before, at("2026-01-01T23:55:00Z"));
    assert_eq!(certificate.not_after, at("2027-01-01T23:55:00Z"));
    assert_eq!(certificate.extensions.alternative_names.dns_names, ["a.example.com"]);
    assert_eq!(certificate.extensions.extended_key_usage, Some(vec![vec![1, 3, 6, 1, 5, 5, 7, 3, 2]]));

    for (seconds, end) in [(600, "00:10:00"), (3600, "01:00:00"), (8 * 3600, "07:55:00")] {
        request["spec"]["expirationSeconds"] = seconds.into();
        assert_eq!(issued(&request).not_after, at(&format!("2026-01-02T{end}Z")));
    }
    request["spec"]["expirationSeconds"] = i64::from(i32::MAX).into();
    assert_eq!(issued(&request).not_after, at("2027-01-01T23:55:00Z"));
}

#[test]
fn other_requests_are_left_alone() {
    let approved = request("kube-apiserver-client", &["client auth"], &content("dev", "jane", Vec::new()));
    assert_eq!(decide(&approved, NOW).steps.len(), 1);
    let with = |pointer: &str, value: Value| {
        let mut changed = approved.clone();
        *changed.pointer_mut(pointer).expect("a field") = value;
        decide(&changed, NOW).steps
    };
    assert_eq!(with("/status/conditions", json!([])), []);
    assert_eq!(with("/status/conditions/0/type", json!("Denied")), []);
    let conditions = json!([{"type": "Approved", "status": "True"}, {"type": "Failed", "status": "True"}]);
    assert_eq!(with("/status/conditions", conditions), []);
    assert_eq!(with("/status", json!({"conditions": approved["status"]["conditions"], "certificate": "eA=="})), []);
    assert_eq!(with("/spec/signerName", json!("example.com/signer")), []);
    assert_eq!(with("/spec/request", json!("eA==")), []);
}

#[test]
fn a_signer_refuses_what_it_does_not_sign() {
    let node = |names| content("system:nodes", "system:node:n", names);
    let dns = || vec![SanType::DnsName("n".try_into().expect("a name"))];
    let ip = || vec![SanType::IpAddress([127, 0, 0, 1].into())];
    let uri = || vec![SanType::URI("https://n".try_into().expect("a URI"))];
    let email = || vec![SanType::Rfc822Name("n@example.com".try_into().expect("an address"))];
    let (client, serving) = (["digital signature", "client auth"], ["digital signature", "server auth"]);
    let check = |signer: &str, usages: &[&str], content: String, expect: &str| {
        let status = status(&request(signer, usages, &content));
        let failed = json!({
            "type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": expect,
            "lastUpdateTime": NOW,
        });
        let approved = json!({"type": "Approved", "status": "True", "lastUpdateTime": NOW});
        assert_eq!(status, json!({"conditions": [approved, failed]}));
    };
    let signer = "kube-apiserver-client";
    check(signer, &serving, node(vec![]), "invalid usage for client certificate: server auth");
    check(signer, &["signing"], node(vec![]), "invalid usage for client certificate: signing");
    check(signer, &serving[..1], node(vec![]), "missing required usage for client certificate: client auth");
    let signer = "kube-apiserver-client-kubelet";
    check(signer, &client, content("dev", "system:node:n", vec![]), "subject organization is not system:nodes");
    let why = "subject common name does not begin with system:node:";
    check(signer, &client, content("system:nodes", "n", vec![]), why);
    check(signer, &client, node(dns()), "DNS subjectAltNames are not allowed");
    check(signer, &client, node(email()), "Email subjectAltNames are not allowed");
    check(signer, &client, node(ip()), "IP subjectAltNames are not allowed");
    check(signer, &client, node(uri()), "URI subjectAltNames are not allowed");
    let why = "usages did not match [client auth digital signature key encipherment]";
    check(signer, &serving, node(vec![]), why);
    let signer = "kubelet-serving";
    check(signer, &serving, content("dev", "system:node:n", dns()), "subject organization is not system:nodes");
    check(signer, &serving, node(vec![]), "DNS or IP subjectAltName is required");
    check(signer, &serving, node([dns(), email()].concat()), "Email subjectAltNames are not allowed");
    check(signer, &serving, node([ip(), uri()].concat()), "URI subjectAltNames are not allowed");
    let why = "usages did not match [digital signature key encipherment server auth]";
    check(signer, &client, node(dns()), why);
    let why = "subject common name does not begin with system:node:";
    check(signer, &serving, content("system:nodes", "n", ip()), why);

    issued(&request("kube-apiserver-client-kubelet", &client, &node(vec![])));
    issued(&request(signer, &["server auth", "key encipherment", "digital signature"], &node(dns())));
    issued(&request("legacy-unknown", &["any"], &content("dev", "n", uri())));
}
