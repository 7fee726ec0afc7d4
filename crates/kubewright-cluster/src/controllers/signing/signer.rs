//! The signers of Kubernetes, and what each of them signs
//! (<https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers>).

use kubewright_apimachinery::certificate::CertificateRequest;

/// The types of attributes in names.
const COMMON_NAME: [u64; 4] = [2, 5, 4, 3];
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

const DIGITAL_SIGNATURE: &str = "digital signature";
const KEY_ENCIPHERMENT: &str = "key encipherment";
const CLIENT_AUTH: &str = "client auth";
const SERVER_AUTH: &str = "server auth";

/// A signer of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signer {
    /// Certificates of clients of the API server.
    Client,
    /// Certificates of nodes as clients of the API server.
    KubeletClient,
    /// Certificates of nodes as servers.
    KubeletServing,
    /// Certificates without any promise. Only older versions of the API accept requests for them.
    LegacyUnknown,
}

impl Signer {
    /// Returns the signer of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "kubernetes.io/kube-apiserver-client" => Some(Self::Client),
            "kubernetes.io/kube-apiserver-client-kubelet" => Some(Self::KubeletClient),
            "kubernetes.io/kubelet-serving" => Some(Self::KubeletServing),
            "kubernetes.io/legacy-unknown" => Some(Self::LegacyUnknown),
            _ => None,
        }
    }

    /// Checks that a request for these usages is one that the signer signs.
    ///
    /// # Errors
    /// Returns what is wrong with it, in Kubernetes' words.
    pub(super) fn check(self, request: &CertificateRequest, usages: &[&str]) -> Result<(), String> {
        match self {
            Self::Client => check_client_usages(usages),
            Self::KubeletClient => check_kubelet_client(request, usages).map_err(str::to_owned),
            Self::KubeletServing => check_kubelet_serving(request, usages).map_err(str::to_owned),
            Self::LegacyUnknown => Ok(()),
        }
    }
}

fn check_client_usages(usages: &[&str]) -> Result<(), String> {
    let allowed = [DIGITAL_SIGNATURE, KEY_ENCIPHERMENT, CLIENT_AUTH];
    if let Some(other) = usages.iter().find(|usage| !allowed.contains(usage)) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    if !usages.contains(&CLIENT_AUTH) {
        return Err(format!("missing required usage for client certificate: {CLIENT_AUTH}"));
    }
    Ok(())
}

fn check_kubelet_client(request: &CertificateRequest, usages: &[&str]) -> Result<(), &'static str> {
    let (organizations, name) = subject(request);
    if organizations != ["system:nodes"] {
        return Err("subject organization is not system:nodes");
    }
    let names = &request.alternative_names;
    if !names.dns_names.is_empty() {
        return Err("DNS subjectAltNames are not allowed");
    }
    if !names.emails.is_empty() {
        return Err("Email subjectAltNames are not allowed");
    }
    if !names.addresses.is_empty() {
        return Err("IP subjectAltNames are not allowed");
    }
    if !names.uris.is_empty() {
        return Err("URI subjectAltNames are not allowed");
    }
    if !name.starts_with("system:node:") {
        return Err("subject common name does not begin with system:node:");
    }
    if !are_usages_of_nodes(usages, CLIENT_AUTH) {
        return Err("usages did not match [client auth digital signature key encipherment]");
    }
    Ok(())
}

fn check_kubelet_serving(request: &CertificateRequest, usages: &[&str]) -> Result<(), &'static str> {
    let (organizations, name) = subject(request);
    if organizations != ["system:nodes"] {
        return Err("subject organization is not system:nodes");
    }
    let names = &request.alternative_names;
    if names.dns_names.is_empty() && names.addresses.is_empty() {
        return Err("DNS or IP subjectAltName is required");
    }
    if !names.emails.is_empty() {
        return Err("Email subjectAltNames are not allowed");
    }
    if !names.uris.is_empty() {
        return Err("URI subjectAltNames are not allowed");
    }
    if !are_usages_of_nodes(usages, SERVER_AUTH) {
        return Err("usages did not match [digital signature key encipherment server auth]");
    }
    if !name.starts_with("system:node:") {
        return Err("subject common name does not begin with system:node:");
    }
    Ok(())
}

/// Returns the common name of the requester.
pub(super) fn common_name(request: &CertificateRequest) -> String {
    subject(request).1
}

/// Returns the organizations and the common name of the requester.
fn subject(request: &CertificateRequest) -> (Vec<String>, String) {
    let attributes = request.subject_attributes().unwrap_or_default();
    let values = |kind: [u64; 4]| {
        attributes.iter().filter(move |(found, _)| *found == kind).map(|(_, value)| value.text().to_owned())
    };
    // Go keeps the last common name.
    (values(ORGANIZATION).collect(), values(COMMON_NAME).next_back().unwrap_or_default())
}

/// Returns whether these are the usages of a node's key for a purpose; keys other than RSA need no encipherment.
fn are_usages_of_nodes(usages: &[&str], purpose: &str) -> bool {
    let required = [DIGITAL_SIGNATURE, purpose];
    required.iter().all(|usage| usages.contains(usage))
        && usages.iter().all(|usage| required.contains(usage) || *usage == KEY_ENCIPHERMENT)
}
