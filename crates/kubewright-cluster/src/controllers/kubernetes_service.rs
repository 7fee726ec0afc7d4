//! The service `kubernetes`, by which programs find the API server. As in Kubernetes, it is recreated if it is deleted.
//! Its endpoint is the address at which the server listens. The same loop maintains the objects of
//! [`service_addresses`](super::service_addresses).

use std::{net::SocketAddr, sync::Arc, time::Duration};

use kubewright_apimachinery::clock::SharedClock;
use kubewright_apimachinery::watch;
use kubewright_apiserver::{ApiServer, Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    batch,
    kind::Kind,
    retry::{Retries, until},
    service_addresses::ServiceAddresses,
    value::{is_deleting, list},
};
use crate::{
    api_endpoints::reachable,
    object_client::{DeleteOptions, ObjectClient, ObjectPath, is_conflict, is_gone},
};

/// The longest pause between two attempts to write.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The pause between two requests for the readiness of the API server.
const READINESS_PAUSE: Duration = Duration::from_millis(100);
const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";
/// Services.
pub(super) const SERVICE: Kind = Kind { group: "", kind: "Service", plural: "services" };
const SLICE: Kind = Kind { group: "discovery.k8s.io", kind: "EndpointSlice", plural: "endpointslices" };
const ENDPOINTS: Kind = Kind { group: "", kind: "Endpoints", plural: "endpoints" };
const KINDS: [Kind; 3] = [SERVICE, SLICE, ENDPOINTS];

/// A write that is required.
#[derive(Debug, PartialEq)]
pub(super) struct Write {
    /// The object, or its collection for a creation.
    pub(super) path: ObjectPath,
    pub(super) operation: Operation,
}

#[derive(Debug, PartialEq)]
pub(super) enum Operation {
    Create(Value),
    /// Merge a patch into the object or a subresource of it.
    Merge(&'static str, Value),
    /// Apply a configuration of the object or of a subresource of it, as a field manager.
    Apply(&'static str, &'static str, Value),
    /// Delete the object of this UID.
    Delete(String),
}

/// Maintains the service and the objects of addresses for as long as it is polled. `server` is the address at which the
/// API server listens.
pub(crate) async fn run(
    api: ApiServer,
    client: ObjectClient,
    clock: SharedClock,
    mut server: watch::Receiver<Option<SocketAddr>>,
) {
    let mut kubernetes_service = KubernetesService::default();
    let mut addresses = ServiceAddresses::default();
    let mut feed = api.feed();
    let mut retries = Retries::up_to(LONGEST_PAUSE);
    // As in kube-apiserver, the service follows the server's own checks. `/metrics/slis` has their results from then
    // on.
    while let Err(error) = client.read_text("/readyz").await {
        tracing::debug!(%error, "failed to ask the API server whether it is ready");
        tokio::time::sleep(READINESS_PAUSE).await;
    }
    loop {
        let now = clock.monotonic();
        let due = !retries.due(now).is_empty();
        if feed.is_synced() && (due || !retries.is_waiting(&())) {
            let address = *server.borrow_and_update();
            let mut writes = kubernetes_service.decide(address);
            writes.extend(addresses.decide(api.service_range(), clock.now()));
            match carry_out(&client, writes).await {
                Ok(()) => retries.forget(&()),
                Err(error) => {
                    tracing::debug!(%error, "failed to maintain the service kubernetes");
                    retries.failed((), now);
                }
            }
        }
        tokio::select! {
            biased;
            batch = batch::next(&mut feed) => {
                if batch.restarted {
                    kubernetes_service.forget();
                    addresses = ServiceAddresses::default();
                }
                for change in &batch.changes {
                    kubernetes_service.take(change);
                    addresses.take(change);
                }
            }
            changed = server.changed() => if changed.is_err() { return },
            () = until(retries.next(), now) => {}
        }
    }
}

async fn carry_out(client: &ObjectClient, writes: Vec<Write>) -> Result<(), kube::Error> {
    for Write { path, operation } in writes {
        let result = match operation {
            Operation::Create(body) => client.create(&path, "", &body).await.map(drop),
            Operation::Merge(subresource, patch) => client.merge(&path, subresource, &patch).await.map(drop),
            Operation::Apply(subresource, manager, config) => {
                client.apply(&path, subresource, manager, &config).await.map(drop)
            }
            Operation::Delete(uid) => {
                client.delete(&path, &DeleteOptions { uid: Some(&uid), ..Default::default() }).await
            }
        };
        match result {
            // Another writer was faster. The feed delivers its object.
            Err(error) if !is_conflict(&error) && !is_gone(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The present state of the service. Pure.
#[derive(Debug, Default)]
struct KubernetesService {
    /// The objects, in the order of [`KINDS`].
    present: [Option<Arc<Value>>; 3],
    /// The last cluster IP of the service.
    cluster_ip: Option<Value>,
}

impl KubernetesService {
    fn forget(&mut self) {
        self.present = Default::default();
    }

    fn take(&mut self, change: &Change) {
        let Some(index) = KINDS.iter().position(|kind| kind.is_of(change)) else { return };
        let metadata = &change.object()["metadata"];
        if metadata["namespace"] != NAMESPACE || metadata["name"] != NAME {
            return;
        }
        let present = (change.kind != ChangeKind::Deleted).then(|| change.object().clone());
        if let Some(service) = present.as_ref().filter(|_| index == 0) {
            self.cluster_ip = Some(service["spec"]["clusterIP"].clone());
        }
        self.present[index] = present;
    }

    /// Returns the required writes.
    fn decide(&self, server: Option<SocketAddr>) -> Vec<Write> {
        let wanted = [Some(self.service(server)), server.map(slice), server.map(endpoints)];
        let mut writes = Vec::new();
        for ((kind, present), wanted) in KINDS.into_iter().zip(&self.present).zip(wanted) {
            let Some(mut wanted) = wanted else { continue };
            match present {
                None => {
                    wanted["apiVersion"] = kind.api_version().into();
                    wanted["kind"] = kind.kind.into();
                    wanted["metadata"]["name"] = NAME.into();
                    writes.push(Write { path: kind.address(NAMESPACE, ""), operation: Operation::Create(wanted) });
                }
                Some(present) if is_deleting(present) => {}
                Some(present) => {
                    let differs = |field: &str| !wanted[field].is_null() && present[field] != wanted[field];
                    let ports = !wanted["spec"].is_null()
                        && list(present, "/spec/ports").first() != list(&wanted, "/spec/ports").first();
                    if ports || ["endpoints", "ports", "subsets"].into_iter().any(differs) {
                        writes.push(Write {
                            path: kind.address(NAMESPACE, NAME),
                            operation: Operation::Merge("", wanted),
                        });
                    }
                }
            }
        }
        writes
    }

    fn service(&self, server: Option<SocketAddr>) -> Value {
        let port = server.map_or(6443, |address| address.port());
        let mut service = json!({
            "metadata": {"labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]},
        });
        if let Some(address) = &self.cluster_ip {
            service["spec"]["clusterIP"] = address.clone();
        }
        service
    }
}

fn slice(server: SocketAddr) -> Value {
    let kind = if reachable(server.ip()).is_ipv4() { "IPv4" } else { "IPv6" };
    json!({
        "metadata": {"labels": {"kubernetes.io/service-name": NAME}},
        "addressType": kind,
        "endpoints": [{"addresses": [reachable(server.ip())], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": server.port(), "protocol": "TCP"}],
    })
}

fn endpoints(server: SocketAddr) -> Value {
    json!({
        "metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{
            "addresses": [{"ip": reachable(server.ip())}],
            "ports": [{"name": "https", "port": server.port(), "protocol": "TCP"}],
        }],
    })
}
