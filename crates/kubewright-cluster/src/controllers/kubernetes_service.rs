//! The service `kubernetes`, by which programs find the API server. As in Kubernetes, it is recreated if it is deleted.
//! Its endpoint is the address at which the server listens.

use std::{net::SocketAddr, sync::Arc};

use kubewright_apimachinery::clock::SharedClock;
use kubewright_apimachinery::watch;
use kubewright_apiserver::{ApiServer, Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    batch,
    kind::Kind,
    retry::{Retries, until},
    value::{is_deleting, list},
};
use crate::{
    api_endpoints::reachable,
    object_client::{ObjectClient, is_conflict},
};

const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";
const SERVICE: Kind = Kind { group: "", kind: "Service", plural: "services" };
const SLICE: Kind = Kind { group: "discovery.k8s.io", kind: "EndpointSlice", plural: "endpointslices" };
const ENDPOINTS: Kind = Kind { group: "", kind: "Endpoints", plural: "endpoints" };
const KINDS: [Kind; 3] = [SERVICE, SLICE, ENDPOINTS];

/// Maintains the service for as long as it is polled. `server` is the address at which the API server listens.
pub(crate) async fn run(
    api: ApiServer,
    client: ObjectClient,
    clock: SharedClock,
    mut server: watch::Receiver<Option<SocketAddr>>,
) {
    let mut kubernetes_service = KubernetesService::default();
    let mut feed = api.feed();
    let mut retries = Retries::default();
    loop {
        let now = clock.monotonic();
        let due = !retries.due(now).is_empty();
        if feed.is_synced() && (due || !retries.is_waiting(&())) {
            let address = *server.borrow_and_update();
            match carry_out(&client, kubernetes_service.decide(address)).await {
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
                }
                batch.changes.iter().for_each(|change| kubernetes_service.take(change));
            }
            changed = server.changed() => if changed.is_err() { return },
            () = until(retries.next(), now) => {}
        }
    }
}

async fn carry_out(client: &ObjectClient, steps: Vec<(Kind, bool, Value)>) -> Result<(), kube::Error> {
    for (kind, present, content) in steps {
        let result = match present {
            true => client.merge(&kind.address(NAMESPACE, NAME), "", &content).await,
            false => client.create(&kind.address(NAMESPACE, ""), "", &content).await,
        };
        match result {
            // Another writer was faster. The feed delivers its object.
            Err(error) if !is_conflict(&error) => return Err(error),
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

    /// Returns the required writes: the kind, whether the object exists, and its content.
    fn decide(&self, server: Option<SocketAddr>) -> Vec<(Kind, bool, Value)> {
        let wanted = [Some(self.service(server)), server.map(slice), server.map(endpoints)];
        let mut steps = Vec::new();
        for ((kind, present), wanted) in KINDS.into_iter().zip(&self.present).zip(wanted) {
            let Some(mut wanted) = wanted else { continue };
            match present {
                None => {
                    wanted["apiVersion"] = kind.api_version().into();
                    wanted["kind"] = kind.kind.into();
                    wanted["metadata"]["name"] = NAME.into();
                    steps.push((kind, false, wanted));
                }
                Some(present) if is_deleting(present) => {}
                Some(present) => {
                    let differs = |field: &str| !wanted[field].is_null() && present[field] != wanted[field];
                    let ports = !wanted["spec"].is_null()
                        && list(present, "/spec/ports").first() != list(&wanted, "/spec/ports").first();
                    if ports || ["endpoints", "ports", "subsets"].into_iter().any(differs) {
                        steps.push((kind, true, wanted));
                    }
                }
            }
        }
        steps
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
