//! The server as its clients see it.

mod objects;
mod over_tls;
mod watching;

/// A server, and a client of it.
fn start() -> (kubewright_apiserver::ApiServer, kube::Client) {
    let api = kubewright_apiserver::ApiServer::builder().build();
    let client = api.client();
    (api, client)
}
