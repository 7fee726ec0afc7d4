//! The endpoints of services.

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use crate::{
    fields::{list, text},
    storage::{Key, Store},
};

/// Returns the addresses of the ready endpoints for a port of a service, from its endpoint slices. If there are none,
/// the error gives the reason in Kubernetes' wording.
pub(crate) fn service_endpoints(
    store: &Store,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<Vec<SocketAddr>, String> {
    let service = store.get("/services", &Key::new(namespace, name));
    let service = service.ok_or_else(|| format!("service {name:?} not found"))?.value();
    let wanted = list(&service, "/spec/ports").iter().find(|one| one["port"] == port);
    let wanted = wanted.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let slices = store.snapshot("discovery.k8s.io/endpointslices").objects;
    let from = Key::new(namespace, "");
    let here = slices.range(from..).take_while(|(key, _)| &*key.namespace == namespace);
    let mut addresses = Vec::new();
    for (_, stored) in here.filter(|(_, stored)| stored.label("kubernetes.io/service-name") == Some(name)) {
        let slice = stored.value();
        let named = |one: &&Value| text(one, "/name") == text(wanted, "/name");
        let port = list(&slice, "/ports").iter().find(named).and_then(|one| u16::try_from(one["port"].as_u64()?).ok());
        let Some(port) = port else { continue };
        let ready = list(&slice, "/endpoints").iter().filter(|one| one["conditions"]["ready"] != false);
        let hosts = ready.flat_map(|one| list(one, "/addresses")).filter_map(|host| host.as_str()?.parse().ok());
        addresses.extend(hosts.map(|host: IpAddr| SocketAddr::new(host, port)));
    }
    if addresses.is_empty() { Err(format!("no endpoints available for service {name:?}")) } else { Ok(addresses) }
}
