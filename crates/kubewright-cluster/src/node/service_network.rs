//! The network namespace in which the node listens on the cluster IPs and external addresses of Services, if pods have
//! network namespaces.
//!
//! In Kubernetes, a cluster IP is an address of no machine: a Service on port 80 doesn't keep a program of the host, or
//! a pod of its network, from listening on port 80 of all addresses. Here the node listens on cluster IPs, and where it
//! does so in the host's network, one of the two can't. So it does so in a namespace, to which the host routes them,
//! and with them the `externalIPs` that aren't its own.

use std::{net::Ipv4Addr, path::PathBuf, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use tokio::process::Command;

use super::{
    address::Lease,
    namespace::NetworkNamespace,
    network::{PodNetworks, Sandbox, device},
};

/// Routes an address into the namespace, where it is local. The arguments are the programs `ip` and `nsenter`, the file
/// of the namespace, the device and the address by which it is connected, the address of the node, and the address.
const ADD: &str = r#"set -e
"$2" --net="$3" -- "$1" route replace local "$7" dev lo table local
"$1" route add "$7/32" via "$5" dev "$4" onlink src "$6" table local"#;
/// Routes a range into the namespace, where packets to an address that no Service has are dropped, instead of being
/// sent to other machines. The arguments are those of [`ADD`], with the range.
const ADD_RANGE: &str = r#""$1" route add "$7" via "$5" dev "$4" onlink src "$6" table local"#;
/// Removes the routes of [`ADD`].
const REMOVE: &str = r#""$1" route del "$7/32" via "$5" dev "$4" table local
"$2" --net="$3" -- "$1" route del local "$7" dev lo table local"#;

/// The network namespace of a node's service proxy. It ends when this is dropped, and the routes with it.
#[derive(Debug)]
pub(crate) struct ServiceNetwork {
    networks: Arc<PodNetworks>,
    sandbox: Sandbox,
    /// The address by which the namespace is connected.
    own: Lease,
}

impl ServiceNetwork {
    /// Creates the namespace, and routes the ranges of pods and Services outside of the loopback network there. `own`
    /// is an address that nothing else has. Each pod has a route of its own beside that to its range.
    ///
    /// # Errors
    /// Returns the reason why it can't be created.
    pub(crate) async fn open(networks: Arc<PodNetworks>, own: Lease) -> Result<Self, String> {
        let sandbox = networks.create(own.ip(), &Pod::default()).await?;
        let network = Self { networks, sandbox, own };
        for range in network.networks.other_ranges() {
            network.run(ADD_RANGE, range).await?;
        }
        Ok(network)
    }

    /// Returns the namespace.
    pub(crate) fn namespace(&self) -> &Arc<NetworkNamespace> {
        &self.sandbox.namespace
    }

    /// Adds an address to the namespace.
    ///
    /// # Errors
    /// Returns the reason why packets to the address can't be routed there, such as another cluster on this host that
    /// has it.
    pub(crate) async fn add(&self, address: Ipv4Addr) -> Result<(), String> {
        self.run(ADD, address).await
    }

    /// Removes an address from the namespace.
    pub(crate) async fn remove(&self, address: Ipv4Addr) {
        if let Err(why) = self.run(REMOVE, address).await {
            tracing::debug!(why, %address, "failed to remove the routes of an address");
        }
    }

    async fn run(&self, script: &str, destination: impl ToString) -> Result<(), String> {
        let mut command = Command::new(&self.networks.shell);
        command.arg("-c").arg(script).arg(&self.networks.shell);
        let programs: [&PathBuf; 3] = [&self.networks.ip, &self.networks.nsenter, &self.namespace().path];
        command.args(programs).arg(device(self.own.ip()));
        command.args([self.own.ip(), self.networks.node()].map(|address| address.to_string()));
        command.arg(destination.to_string());
        let output = command.kill_on_drop(true).output().await.map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")),
        }
    }
}
