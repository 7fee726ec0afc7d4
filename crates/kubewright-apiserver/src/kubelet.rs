//! The kubelets of nodes that other programs run, such as KWOK or a virtual kubelet
//! (<https://kubernetes.io/docs/concepts/architecture/control-plane-node-communication/#apiserver-to-kubelet>).
//!
//! They are reached over TLS at the address and port of the node's status, with a certificate of the server's
//! authority. Their own certificates aren't verified, as by kube-apiserver without `--kubelet-certificate-authority`.

use std::sync::{Arc, OnceLock};

use http::{Method, Request, header, request};
use kubewright_apimachinery::status::Status;
use rustls::{ClientConfig, crypto::ring};
use serde_json::Value;

use crate::{
    certificate_authority::CertificateAuthority,
    fields::{list, text},
    peer::PeerVerifier,
    proxy::{self, Connection, Endpoint},
    tls::{self, TlsError},
};

/// The user and the group of the client certificate.
const USER: (&str, &str) = ("kube-apiserver-kubelet-client", "system:masters");
/// The types of addresses, the preferred ones first: the defaults of kube-apiserver.
const PREFERRED: &[&str] = &["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];
/// The types of addresses of the cluster's own node, whose name the machine may not know.
const OWN: &[&str] = &["InternalIP"];
/// The port of a node whose status has none.
const DEFAULT_PORT: u16 = 10250;
/// The feature of kubelets that serve all subprotocols of WebSockets.
const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";

/// The kubelets of all nodes.
pub(crate) struct Kubelets {
    /// The node whose kubelet is part of this process.
    own: Option<String>,
    authority: Arc<CertificateAuthority>,
    /// Created when first used.
    config: OnceLock<Arc<ClientConfig>>,
}

/// The kubelet of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kubelet {
    /// Whether it is part of this process.
    pub(crate) is_own: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Whether it serves all subprotocols of WebSockets.
    pub(crate) serves_websockets: bool,
}

impl Kubelets {
    /// Creates the kubelets of all nodes. That of the node `own` is part of this process.
    pub(crate) fn new(own: Option<String>, authority: Arc<CertificateAuthority>) -> Self {
        Self { own, authority, config: OnceLock::new() }
    }

    /// Returns whether the kubelet of a node is part of this process.
    pub(crate) fn is_own(&self, node: &str) -> bool {
        self.own.as_deref() == Some(node)
    }

    /// Returns the kubelet of a node.
    ///
    /// # Errors
    /// Returns 500 if the node has no address.
    pub(crate) fn of(&self, node: &Value) -> Result<Kubelet, Status> {
        let is_own = self.is_own(text(node, "/metadata/name"));
        let addresses = list(node, "/status/addresses");
        let preferred = if is_own { OWN } else { PREFERRED };
        let found = preferred.iter().find_map(|kind| addresses.iter().find(|address| text(address, "/type") == *kind));
        let Some(address) = found else {
            let known: Vec<_> = addresses
                .iter()
                .map(|address| format!("{{{} {}}}", text(address, "/type"), text(address, "/address")))
                .collect();
            let known = known.join(" ");
            return Err(Status::unknown(format!("no preferred addresses found; known addresses: [{known}]")));
        };
        let port = node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64);
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        Ok(Kubelet {
            is_own,
            host: text(address, "/address").to_owned(),
            port: port.unwrap_or(DEFAULT_PORT),
            serves_websockets: list(node, "/status/declaredFeatures").iter().any(|feature| feature == WEBSOCKETS),
        })
    }

    /// Connects to a kubelet.
    ///
    /// # Errors
    /// Returns the words of Go's client.
    pub(crate) async fn dial(&self, kubelet: &Kubelet) -> Result<Box<dyn Connection>, String> {
        let addresses = proxy::lookup(&kubelet.host, kubelet.port).await.map_err(|why| format!("dial tcp: {why}"))?;
        proxy::dial(&Endpoint { addresses, tls: Some((kubelet.host.clone(), self.config()?)) }).await
    }

    /// Returns the configuration of connections.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, String> {
        if let Some(config) = self.config.get() {
            return Ok(config.clone());
        }
        let config = self.configure().map_err(|error| error.to_string())?;
        Ok(self.config.get_or_init(|| Arc::new(config)).clone())
    }

    fn configure(&self) -> Result<ClientConfig, TlsError> {
        let (user, group) = USER;
        let (certificate, key) = tls::client_certificate(&self.authority, group, user)?;
        let provider = ring::default_provider();
        let verifier = Arc::new(PeerVerifier::any(provider.signature_verification_algorithms));
        Ok(ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(vec![certificate.der().clone()], key.into())?)
    }
}

impl Kubelet {
    /// Returns the host and the port.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Returns the URL of a path and query.
    pub(crate) fn url(&self, target: &str) -> String {
        format!("https://{}{target}", self.authority())
    }

    /// Begins a request of this server itself.
    pub(crate) fn request(&self, method: Method, target: &str) -> request::Builder {
        Request::builder().method(method).uri(target).header(header::HOST, self.authority())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_preferred_address_is_the_kubelet() {
        let kubelets = Kubelets::new(Some("own".into()), Arc::default());
        let check = |name: &str, status: Value, expect: Result<&str, &str>| {
            let node = json!({"metadata": {"name": name}, "status": status});
            let found = kubelets.of(&node).map(|kubelet| kubelet.authority()).map_err(|status| status.message);
            assert_eq!(found, expect.map(str::to_owned).map_err(str::to_owned), "{node}");
        };
        let address = |kind: &str, address: &str| json!({"type": kind, "address": address});
        let (internal, name) = (address("InternalIP", "10.0.0.1"), address("Hostname", "n.example.com"));
        let endpoint = json!({"kubeletEndpoint": {"Port": 10247}});
        check("n", json!({"addresses": [internal, name], "daemonEndpoints": endpoint}), Ok("n.example.com:10247"));
        check("own", json!({"addresses": [name, internal]}), Ok("10.0.0.1:10250"));
        let external = [address("ExternalIP", "10.0.0.2"), address("InternalIP", "fd00::1")];
        check("n", json!({"addresses": external}), Ok("[fd00::1]:10250"));
        check("n", json!({}), Err("no preferred addresses found; known addresses: []"));
        let unknown = [address("Other", "a"), address("Another", "b")];
        let why = "no preferred addresses found; known addresses: [{Other a} {Another b}]";
        check("n", json!({"addresses": unknown}), Err(why));
    }
}
