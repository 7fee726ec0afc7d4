//! The Service `kube-dns`, by which programs that don't read `/etc/resolv.conf` find the server.

use std::net::{IpAddr, Ipv4Addr};

use kubewright_apimachinery::cidr::Cidr;
use serde_json::{Value, json};

use super::PORT;
use crate::object_client::{ObjectClient, ObjectPath};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "kube-dns";
const MANAGER: &str = "kubewright";
/// The position of the Service's address in the range of Services, as kubeadm has it.
const POSITION: u32 = 10;

/// Writes the Service, and its EndpointSlice, which leads to the server. A Service that is there already keeps its
/// address.
///
/// # Errors
/// If the API server refuses one of them.
pub(crate) async fn publish(client: &ObjectClient, server: Ipv4Addr, range: Cidr) -> Result<(), kube::Error> {
    let path = ObjectPath::core("services", Some(NAMESPACE), NAME);
    let address = if client.get(&path).await?.is_none() { address(range) } else { None };
    let written = match client.apply(&path, "", MANAGER, &service(address)).await {
        // Another Service may have the address.
        Err(_) if address.is_some() => client.apply(&path, "", MANAGER, &service(None)).await?,
        written => written?,
    };
    let slices = ObjectPath { group: "discovery.k8s.io".into(), plural: "endpointslices".into(), ..path };
    client.apply(&slices, "", MANAGER, &slice(server, &written["metadata"]["uid"])).await.map(drop)
}

/// Returns the address in a range of Services. In the loopback network, which the clusters of a host share, it is any
/// address, as that of other Services.
fn address(range: Cidr) -> Option<Ipv4Addr> {
    let IpAddr::V4(first) = range.aligned().address else { return None };
    if first.is_loopback() {
        return None;
    }
    let address = Ipv4Addr::from_bits(first.to_bits().checked_add(POSITION)?);
    range.contains(address.into()).then_some(address)
}

fn ports() -> Value {
    json!([{"name": "dns", "port": PORT, "protocol": "UDP"}, {"name": "dns-tcp", "port": PORT, "protocol": "TCP"}])
}

fn service(address: Option<Ipv4Addr>) -> Value {
    let mut service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": NAME, "namespace": NAMESPACE,
            "labels": {"k8s-app": NAME, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"},
        },
        "spec": {"ports": ports()},
    });
    if let Some(address) = address {
        service["spec"]["clusterIP"] = json!(address);
    }
    service
}

/// `uid` is that of the Service, with which the slice is deleted.
fn slice(server: Ipv4Addr, uid: &Value) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": NAME, "namespace": NAMESPACE,
            "labels": {
                "k8s-app": NAME, "kubernetes.io/service-name": NAME,
                "endpointslice.kubernetes.io/managed-by": MANAGER,
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": NAME, "uid": uid}],
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [server], "conditions": {"ready": true}}],
        "ports": ports(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_the_tenth_of_the_range() {
        let check = |range: &str, expect: Option<&str>| {
            let address = address(Cidr::parse(range).expect("a range"));
            assert_eq!(address.map(|address| address.to_string()).as_deref(), expect, "{range}");
        };
        check("10.96.0.0/12", Some("10.96.0.10"));
        check("10.96.7.9/24", Some("10.96.7.10"));
        check("10.96.0.8/29", None);
        check("fd00::/112", None);
        check("127.96.0.0/12", None);
    }
}
