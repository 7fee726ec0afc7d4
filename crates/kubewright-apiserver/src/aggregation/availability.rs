//! The condition `Available` of APIServices.

use futures::future::join_all;
use serde_json::Value;

use super::{
    Aggregation,
    services::{ApiService, Remote},
};
use crate::{
    fields::{list, text},
    storage::Key,
};

/// The number of requests of a check, one of which has to succeed.
const ATTEMPTS: usize = 5;

/// The condition `Available` of an APIService, with the reasons and messages of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Availability {
    /// True if requests are sent to the server.
    pub is_available: bool,
    /// The reason: `Passed`, `ServiceNotFound`, `ServicePortError`, `EndpointsNotFound`, `MissingEndpoints` or
    /// `FailedDiscoveryCheck`.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

impl Availability {
    fn missing(reason: &'static str, message: String) -> Self {
        Self { is_available: false, reason, message }
    }
}

impl Aggregation {
    /// Checks whether the server of an APIService can be reached: its Service and endpoints exist, and it answers a
    /// request for the resources of its version within five seconds. Returns `None` if no APIService of this name names
    /// a Service.
    pub async fn check(&self, name: &str) -> Option<Availability> {
        let service = self.services.get(name)?;
        let remote = service.remote.as_ref()?;
        let checked = match self.check_endpoints(remote) {
            Ok(()) => self.check_discovery(&service, remote).await,
            Err(missing) => Err(missing),
        };
        Some(checked.err().unwrap_or_else(|| Availability {
            is_available: true,
            reason: "Passed",
            message: "all checks passed".to_owned(),
        }))
    }

    fn check_endpoints(&self, remote: &Remote) -> Result<(), Availability> {
        let Remote { namespace, service: name, port, .. } = remote;
        let shown = format!("service/{name} in {namespace:?}");
        let store = &self.client.store;
        let Some(stored) = store.get("/services", &Key::new(namespace, name)) else {
            return Err(Availability::missing("ServiceNotFound", format!("{shown} is not present")));
        };
        let service = stored.value();
        if text(&service, "/spec/type") != "ClusterIP" {
            return Ok(());
        }
        let Some(declared) = list(&service, "/spec/ports").iter().find(|one| one["port"] == *port) else {
            return Err(Availability::missing("ServicePortError", format!("{shown} is not listening on port {port}")));
        };
        let slices = store.of_namespace("discovery.k8s.io/endpointslices", namespace);
        let slices: Vec<_> = slices
            .iter()
            .filter(|(_, stored)| stored.label("kubernetes.io/service-name") == Some(name))
            .map(|(_, stored)| stored.value())
            .collect();
        if slices.is_empty() {
            return Err(Availability::missing("EndpointsNotFound", format!("cannot find endpointslices for {shown}")));
        }
        let port = text(declared, "/name");
        if slices.iter().any(|slice| has_endpoint(slice, port)) {
            return Ok(());
        }
        let message = format!("endpointslices for {shown} have no addresses with port name {port:?}");
        Err(Availability::missing("MissingEndpoints", message))
    }

    async fn check_discovery(&self, service: &ApiService, remote: &Remote) -> Result<(), Availability> {
        let path = service.path();
        let host = self.external_name(remote).unwrap_or_else(|| self.cluster_ip(remote));
        let url = format!("https://{host}:{}{path}", remote.port);
        let attempt = async || match self.get(remote, &path, "*/*").await {
            Ok((code, ..)) if code.is_success() => Ok(()),
            Ok((code, ..)) => Err(format!("bad status from {url}: {}", code.as_u16())),
            Err(why) => Err(format!("Get {url:?}: {why}")),
        };
        // None of them is broken off, which the other server would log as an error.
        let results = join_all((0..ATTEMPTS).map(|_| attempt())).await;
        let Some(why) = results.iter().find_map(|result| result.as_ref().err()) else { return Ok(()) };
        if results.iter().any(Result::is_ok) {
            return Ok(());
        }
        let message = format!("failing or missing response from {url}: {why}");
        Err(Availability::missing("FailedDiscoveryCheck", message))
    }

    /// Returns the cluster IP of a service, for messages.
    fn cluster_ip(&self, remote: &Remote) -> String {
        let service = self.client.store.get("/services", &Key::new(&remote.namespace, &remote.service));
        let address = service.map(|stored| text(&stored.value(), "/spec/clusterIP").to_owned());
        address.filter(|address| !address.is_empty() && address != "None").unwrap_or_else(|| remote.host())
    }
}

/// Returns whether a slice has a ready endpoint and a port of this name.
fn has_endpoint(slice: &Value, port: &str) -> bool {
    list(slice, "/endpoints").iter().any(|one| one["conditions"]["ready"] != false)
        && list(slice, "/ports").iter().any(|one| text(one, "/name") == port && one["port"].is_u64())
}
