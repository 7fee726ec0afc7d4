//! The settings of all requests of a manager.

use kube::Client;
use kubewright_apimachinery::clock::SharedClock;

use super::Manager;
use crate::{client, limit::RateLimit, process::program_name};

/// The settings of all requests of a manager.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    /// The program and its version.
    product: Option<String>,
    pub(super) limit: Option<RateLimit>,
}

impl Requests {
    /// Returns the `User-Agent`.
    pub(super) fn user_agent(&self) -> String {
        let product = self.product.clone();
        client::user_agent(&product.unwrap_or_else(|| format!("{}/unknown", program_name())))
    }

    /// Returns a client with the settings.
    pub(super) fn client(&self, client: &Client, clock: &SharedClock) -> Client {
        client::outgoing(client, &self.user_agent(), self.limit, clock)
    }
}

impl Manager {
    /// Sets the program and its version in the `User-Agent` of requests, which the API server's audit log shows. The
    /// whole is `<program>/<version> (<os>/<arch>) kubewright/<version>`, in the requests of reconciles with
    /// `/<controller>` behind it. By default the program is the name of its file, and the version `unknown`.
    ///
    /// ```
    /// # use kubewright_runtime::manager::Manager;
    /// # fn example(manager: Manager) -> Manager {
    /// manager.user_agent(concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")))
    /// # }
    /// ```
    pub fn user_agent(mut self, product: &str) -> Self {
        self.requests.product = Some(product.into());
        self
    }

    /// Limits the rate of the manager's requests, watches included: `burst` at once, then `qps` per second (client-go:
    /// `QPS` and `Burst`). Further requests wait in their order. By default there is no limit, because the API server
    /// has its own, [priority and fairness](https://kubernetes.io/docs/concepts/cluster-administration/flow-control/).
    /// The flags are `--kube-api-qps` and `--kube-api-burst`.
    ///
    /// The renewals of a lease wait too, so leave them enough room. Clients from [`Manager::client`] are not limited.
    pub fn client_rate_limit(mut self, qps: f64, burst: u32) -> Self {
        self.requests.limit = (qps > 0.0).then_some(RateLimit { per_second: qps, burst: burst.max(1) });
        self
    }
}
