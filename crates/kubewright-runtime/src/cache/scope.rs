//! The scope of a kind that is known only at run time.

use kube::Client;
use kubewright_apimachinery::random::Random;
use tracing::warn;

use super::{
    kind::Kind,
    watch::{MISSING_BACKOFF, backoff},
};
use crate::client;

/// Asks the API server whether a kind is cluster-scoped, until it says so, and watches the kind in all namespaces then.
/// If discovery isn't allowed, the kind counts as namespaced.
pub(super) async fn discover(kind: &Kind, client: &Client, random: &Random) {
    let name = kind.name();
    let mut failures = 0u32;
    loop {
        let version = name.api_version();
        let listed = match &*name.group {
            "" => client.list_core_api_resources(&version).await,
            _ => client.list_api_group_resources(&version).await,
        };
        let (reason, wait) = match listed {
            Ok(list) => match list.resources.iter().find(|resource| resource.name == name.plural) {
                Some(resource) if !resource.namespaced => return kind.set_cluster_scoped(),
                Some(_) => return,
                None => ("the API server doesn't serve it".to_owned(), MISSING_BACKOFF),
            },
            Err(kube::Error::Api(status)) if status.code == 403 => return,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                ("the API server doesn't serve its version".to_owned(), MISSING_BACKOFF)
            }
            Err(error) => (client::explain(&error), backoff(failures, random.fraction())),
        };
        failures += 1;
        // The warning is repeated each time the number of failures has doubled.
        if failures.is_power_of_two() {
            warn!(kind = %name, "failed to find the scope of {name}: {reason}");
        }
        kind.fail(0, reason);
        tokio::time::sleep(wait).await;
    }
}
