//! The backends of `pods/proxy`, `services/proxy` and `nodes/proxy`, and the subresources of nodes that stand for their
//! kubelets.

use std::net::{IpAddr, SocketAddr};

use kubewright_apimachinery::status::Status;
use serde_json::Value;

use crate::{
    fields::{list, text},
    kubelet::Kubelets,
    proxy::{Backend, Identifier, is_allowed},
    storage::{Key, Store},
};

/// Returns the backend of an object. The port in its identifier may be a number, a name, or absent.
///
/// # Errors
/// Returns the errors of kube-apiserver: 404, 400, 503 if there is no endpoint, or 500 if a node has no address.
pub(crate) fn proxy_backend(
    store: &Store,
    kubelets: &Kubelets,
    storage: &str,
    namespace: &str,
    identifier: &str,
) -> Result<Backend, Status> {
    let kind = match storage {
        "/pods" => "pod",
        "/nodes" => "node",
        _ => "service",
    };
    let Identifier { scheme, name, port } = Identifier::parse(kind, identifier)?;
    let tls = scheme == "https";
    let key = Key::new(namespace, name);
    let addresses = match storage {
        "/pods" => pod(store, &key, port, if tls { 443 } else { 80 }).map(|address| vec![address]),
        "/nodes" => return node(store, kubelets, &key, port, tls),
        _ => service(store, &key, port, identifier),
    };
    Ok(Backend::Addresses(addresses?, tls))
}

/// Returns the kubelet of a node, or the server at another port of it.
fn node(store: &Store, kubelets: &Kubelets, key: &Key, port: &str, tls: bool) -> Result<Backend, Status> {
    let node = store.get("/nodes", key).ok_or_else(|| Status::not_found("", "nodes", &key.name))?.value();
    let kubelet = kubelets.of(&node)?;
    if port.is_empty() || port == kubelet.port.to_string() {
        return Ok(Backend::Kubelet(kubelet));
    }
    Ok(Backend::Host(kubelet.host, number(port)?, tls))
}

/// Returns the subresources of a node of which one must be allowed for a request to its kubelet, by the beginning of
/// the path (<https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/>).
pub(crate) fn kubelet_subresources(beginning: &str) -> &'static [&'static str] {
    match beginning {
        "stats" => &["stats"],
        "metrics" => &["metrics"],
        "logs" => &["log"],
        "healthz" => &["healthz", "proxy"],
        "configz" => &["configz", "proxy"],
        "pods" | "runningpods" => &["pods", "proxy"],
        _ => &["proxy"],
    }
}

fn pod(store: &Store, key: &Key, port: &str, default_port: u16) -> Result<SocketAddr, Status> {
    let pod = store.get("/pods", key).ok_or_else(|| Status::not_found("", "pods", &key.name))?.value();
    let declared = || {
        let containers = list(&pod, "/spec/containers").iter();
        let port = containers.flat_map(|container| list(container, "/ports")).next()?;
        u16::try_from(port["containerPort"].as_u64()?).ok()
    };
    let port = if port.is_empty() { declared().unwrap_or(default_port) } else { number(port)? };
    let address = text(&pod, "/status/podIP").parse().ok().filter(is_allowed);
    Ok(SocketAddr::new(address.ok_or_else(|| Status::bad_request("address not allowed"))?, port))
}

/// Returns the number of a port, which may be the name of a protocol.
fn number(port: &str) -> Result<u16, Status> {
    match port {
        "http" => Ok(80),
        "https" => Ok(443),
        port => port.parse().map_err(|_| unreachable(&format!("lookup tcp/{port}: unknown port"))),
    }
}

fn service(store: &Store, key: &Key, port: &str, identifier: &str) -> Result<Vec<SocketAddr>, Status> {
    let name = &*key.name;
    let service = store.get("/services", key).ok_or_else(|| Status::not_found("", "services", name))?.value();
    let port_name = match port.parse::<u64>() {
        Err(_) => port.to_owned(),
        Ok(number) => {
            let declared = list(&service, "/spec/ports").iter().find(|one| one["port"] == number);
            let why = format!("no service port {number} found for service {name:?}");
            text(declared.ok_or_else(|| unavailable(why))?, "/name").to_owned()
        }
    };
    let slices = store.snapshot("discovery.k8s.io/endpointslices").objects;
    let from = Key::new(&key.namespace, "");
    let here = slices.range(from..).take_while(|(slice, _)| slice.namespace == key.namespace);
    let mut addresses = Vec::new();
    let mut any_endpoint = false;
    for (_, stored) in here.filter(|(_, stored)| stored.label("kubernetes.io/service-name") == Some(name)) {
        let slice = stored.value();
        any_endpoint |= !list(&slice, "/endpoints").is_empty();
        let named = |one: &&Value| text(one, "/name") == port_name;
        let port = list(&slice, "/ports").iter().find(named).and_then(|one| u16::try_from(one["port"].as_u64()?).ok());
        let Some(port) = port else { continue };
        let ready = list(&slice, "/endpoints").iter().filter(|one| one["conditions"]["ready"] != false);
        for endpoint in ready.filter(|one| text(one, "/targetRef/kind") == "Pod") {
            let hosts = list(endpoint, "/addresses").iter().filter_map(|host| host.as_str()?.parse().ok());
            let pod = store.get("/pods", &Key::new(&key.namespace, text(endpoint, "/targetRef/name")));
            let pod = pod.map(|stored| stored.value());
            // Other addresses than those of pods aren't allowed: users may write endpoints.
            let of_pod = |host: &IpAddr| pod.as_ref().is_some_and(|pod| has_address(pod, host));
            addresses.extend(hosts.filter(of_pod).filter(is_allowed).map(|host| SocketAddr::new(host, port)));
        }
    }
    if addresses.is_empty() {
        // A port without endpoints is reported with the whole identifier.
        let what = if any_endpoint { identifier } else { name };
        return Err(unavailable(format!("no endpoints available for service {what:?}")));
    }
    Ok(addresses)
}

fn has_address(pod: &Value, host: &IpAddr) -> bool {
    let own = [text(pod, "/status/podIP")].into_iter();
    let all = own.chain(list(pod, "/status/podIPs").iter().map(|address| text(address, "/ip")));
    all.filter_map(|address| address.parse::<IpAddr>().ok()).any(|address| address == *host)
}

fn unavailable(message: String) -> Status {
    Status::new(503, "ServiceUnavailable", message)
}

fn unreachable(why: &str) -> Status {
    unavailable(format!("error trying to reach service: dial tcp: {why}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::storage::{Limits, Mutation, WriteError};

    fn put(store: &Store, storage: &str, object: Value) {
        let key = Key::new(text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
        let mut object = Some(object);
        let decide = |_: Option<&_>| Ok::<_, WriteError>(Mutation::Put(object.take().unwrap()));
        store.transact(&storage.into(), &key, decide, |_, _| {}).unwrap();
    }

    fn metadata(name: &str) -> Value {
        json!({"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}})
    }

    fn store() -> Store {
        let store = Store::new(Limits::default());
        let ports = json!([{"ports": []}, {"ports": [{"containerPort": 8080}]}]);
        put(
            &store,
            "/pods",
            json!({"metadata": metadata("p"), "spec": {"containers": ports}, "status": {"podIP": "127.1.0.1"}}),
        );
        let address = json!([{"type": "InternalIP", "address": "127.1.0.9"}]);
        put(&store, "/nodes", json!({"metadata": {"name": "n"}, "status": {"addresses": address}}));
        put(&store, "/nodes", json!({"metadata": {"name": "bare"}, "status": {}}));
        put(&store, "/pods", json!({"metadata": metadata("pending"), "status": {}}));
        put(&store, "/pods", json!({"metadata": metadata("meta"), "status": {"podIP": "169.254.169.254"}}));
        let ports = json!([{"name": "http", "port": 80}, {"name": "admin", "port": 81}]);
        put(&store, "/services", json!({"metadata": metadata("web"), "spec": {"ports": ports}}));
        let target = json!({"kind": "Pod", "name": "p", "namespace": "default"});
        let slice = json!({
            "metadata": metadata("web-1"), "ports": [{"name": "http", "port": 8080}],
            "endpoints": [
                {"addresses": ["127.1.0.1"], "conditions": {"ready": true}, "targetRef": target},
                {"addresses": ["127.1.0.2"], "conditions": {"ready": true}, "targetRef": target},
                {"addresses": ["127.1.0.1"], "conditions": {"ready": true}},
            ],
        });
        put(&store, "discovery.k8s.io/endpointslices", slice);
        store
    }

    #[test]
    fn objects_are_resolved_to_the_addresses_of_pods_and_nodes() {
        let (store, kubelets) = (store(), Kubelets::new(None, Arc::default()));
        let check = |storage: &str, identifier: &str, expect: Result<&str, (u16, &str)>| {
            let namespace = if storage == "/nodes" { "" } else { "default" };
            let result = proxy_backend(&store, &kubelets, storage, namespace, identifier);
            let shown = result.map(|backend| match backend {
                Backend::Addresses(addresses, tls) => {
                    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                    format!("{}{}", if tls { "https " } else { "" }, addresses.join(" "))
                }
                Backend::Host(host, port, tls) => format!("{}{host}:{port}", if tls { "https " } else { "" }),
                Backend::Kubelet(kubelet) => format!("kubelet {}", kubelet.authority()),
            });
            let expect = expect.map(str::to_owned).map_err(|(code, message)| (code, message.to_owned()));
            assert_eq!(shown.map_err(|status| (status.code, status.message)), expect, "{storage} {identifier}");
        };
        check("/pods", "p", Ok("127.1.0.1:8080"));
        check("/pods", "p:81", Ok("127.1.0.1:81"));
        check("/pods", "p:https", Ok("127.1.0.1:443"));
        let unknown = "error trying to reach service: dial tcp: lookup tcp/metrics: unknown port";
        check("/pods", "p:metrics", Err((503, unknown)));
        check("/pods", "pending", Err((400, "address not allowed")));
        check("/pods", "meta", Err((400, "address not allowed")));
        check("/pods", "q", Err((404, "pods \"q\" not found")));
        check("/services", "web:http", Ok("127.1.0.1:8080"));
        check("/services", "web:80", Ok("127.1.0.1:8080"));
        check("/services", "web", Err((503, "no endpoints available for service \"web\"")));
        check("/services", "web:81", Err((503, "no endpoints available for service \"web:81\"")));
        check("/services", "http:web:http", Ok("127.1.0.1:8080"));
        check("/services", "https:web:http", Ok("https 127.1.0.1:8080"));
        check("/services", "ftp:web:80", Err((400, "invalid service request \"ftp:web:80\"")));
        check("/nodes", "n", Ok("kubelet 127.1.0.9:10250"));
        check("/nodes", "https:n:10250", Ok("kubelet 127.1.0.9:10250"));
        check("/nodes", "n:9100", Ok("127.1.0.9:9100"));
        check("/nodes", "https:n:9100", Ok("https 127.1.0.9:9100"));
        check("/nodes", "bare", Err((500, "no preferred addresses found; known addresses: []")));
        check("/nodes", "none", Err((404, "nodes \"none\" not found")));
        check("/nodes", "ftp:n:1", Err((400, "invalid node request \"ftp:n:1\"")));
        check("/pods", "a:b:c:d", Err((400, "invalid pod request \"a:b:c:d\"")));
        check("/services", "web:82", Err((503, "no service port 82 found for service \"web\"")));
        check("/services", "none:82", Err((404, "services \"none\" not found")));
        check("/services", "none", Err((404, "services \"none\" not found")));
    }
}
