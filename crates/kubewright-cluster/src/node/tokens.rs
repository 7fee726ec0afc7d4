//! The service account tokens of the node's pods, and the kubeconfig that refers to them.
//!
//! A token is requested for a pod, an audience and a lifetime, is shared by the containers of the pod, and is replaced
//! by the kubelet's rule: after four fifths of its life, or after a day.

use std::{collections::BTreeMap, net::SocketAddr, path::Path};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, ServiceAccountTokenProjection};
use kubewright_apimachinery::clock::SharedClock;
use parking_lot::Mutex;
use serde_json::json;

use crate::object_client::{ObjectClient, ObjectPath};

/// The path at which clients look for the token, the CA certificate and the namespace.
pub(crate) const PLACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The default lifetime of a token in seconds.
const LIFE: i64 = 60 * 60;
/// The age at which every token is replaced.
const OLD: SignedDuration = SignedDuration::from_hours(24);

/// The properties of a token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TokenRequest {
    /// The audience; by default the API server.
    audience: Option<String>,
    /// The lifetime in seconds.
    seconds: i64,
}

impl TokenRequest {
    /// Returns the token that a volume contains.
    pub(crate) fn of(source: &ServiceAccountTokenProjection) -> Self {
        let audience = source.audience.clone().filter(|audience| !audience.is_empty());
        Self { audience, seconds: source.expiration_seconds.unwrap_or(LIFE) }
    }
}

/// A token.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    /// Its text.
    pub(crate) text: String,
    /// The time at which it is replaced.
    pub(crate) renew_at: Timestamp,
    end: Timestamp,
}

/// The current tokens, by the UIDs of their pods.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<BTreeMap<(String, TokenRequest), Token>>);

impl Tokens {
    /// Returns a token for a pod: the current one, or a new one if it is to be replaced.
    ///
    /// # Errors
    /// If the API server refuses the token, and the current one has ended.
    pub(crate) async fn get(
        &self,
        client: &ObjectClient,
        clock: &SharedClock,
        pod: &Pod,
        wanted: &TokenRequest,
    ) -> Result<Token, String> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let key = (text(&pod.metadata.uid), wanted.clone());
        let now = clock.now();
        let present = self.0.lock().get(&key).cloned();
        if let Some(present) = present.clone().filter(|token| now < token.renew_at) {
            return Ok(present);
        }
        match request(client, pod, wanted, now).await {
            Ok(token) => {
                self.0.lock().insert(key, token.clone());
                Ok(token)
            }
            Err(error) => present.filter(|token| now < token.end).ok_or(error),
        }
    }

    /// Forgets the tokens of a pod.
    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().retain(|(of, _), _| of != uid);
    }
}

async fn request(client: &ObjectClient, pod: &Pod, wanted: &TokenRequest, now: Timestamp) -> Result<Token, String> {
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).unwrap_or_default();
    let account = ObjectPath::core("serviceaccounts", pod.metadata.namespace.as_deref(), &account);
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": pod.metadata.name, "uid": pod.metadata.uid});
    let audiences: Vec<_> = wanted.audience.iter().collect();
    let request = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "spec": {"audiences": audiences, "expirationSeconds": wanted.seconds, "boundObjectRef": bound},
    });
    let answer =
        client.create(&account, "/token", &request).await.map_err(|error| format!("failed to fetch token: {error}"))?;
    let end = answer["status"]["expirationTimestamp"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let end = end.unwrap_or(now);
    let text = answer["status"]["token"].as_str().unwrap_or_default().to_owned();
    Ok(Token { text, renew_at: renewal(now, end), end })
}

/// Returns the time at which a token that was made at `start` and ends at `end` is replaced.
fn renewal(start: Timestamp, end: Timestamp) -> Timestamp {
    let life = end.duration_since(start);
    start.saturating_add((life * 4 / 5).min(OLD)).unwrap_or(end)
}

/// Returns a kubeconfig for the files in a directory as JSON, which is valid YAML and needs no quoting rules.
pub(crate) fn kubeconfig(server: SocketAddr, place: &Path, namespace: &str, account: &str) -> String {
    let path = |file: &str| place.join(file).to_string_lossy().into_owned();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "pod",
        "clusters": [{
            "name": "kubewright",
            "cluster": {"server": format!("https://{server}"), "certificate-authority": path("ca.crt")},
        }],
        "users": [{"name": account, "user": {"tokenFile": path("token")}}],
        "contexts": [{"name": "pod", "context": {"cluster": "kubewright", "user": account, "namespace": namespace}}],
    });
    config.to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kubewright_apimachinery::clock::VirtualClock;
    use kubewright_apiserver::ApiServer;
    use serde_json::Value;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_token_is_replaced_after_four_fifths_of_its_life() {
        let clock: SharedClock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
        let api = ApiServer::builder().clock(clock.clone()).build();
        let client = ObjectClient::new(api.client());
        let create = async |plural: &str, object: Value| {
            client.create(&ObjectPath::core(plural, Some("default"), ""), "", &object).await.unwrap()
        };
        create("serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
        let spec = json!({"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]});
        let pod = create("pods", json!({"metadata": {"name": "p"}, "spec": spec})).await;
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let tokens = Tokens::default();
        let wanted = TokenRequest { audience: None, seconds: 3600 };
        let get = async || tokens.get(&client, &clock, &pod, &wanted).await.unwrap().text;
        let first = get().await;
        sleep(Duration::from_secs(47 * 60)).await;
        assert_eq!(get().await, first);
        sleep(Duration::from_secs(2 * 60)).await;
        let second = get().await;
        assert_ne!(second, first);
        tokens.forget(pod.metadata.uid.as_deref().unwrap());
        sleep(Duration::from_secs(1)).await;
        assert_ne!(get().await, second);
    }

    #[test]
    fn tokens_are_replaced_after_a_day_at_the_latest() {
        let at = |hours: i64| Timestamp::from_second(hours * 3600).unwrap();
        assert_eq!(renewal(at(0), at(10)), at(8));
        assert_eq!(renewal(at(0), at(1000)), at(24));
    }

    #[test]
    fn the_kubeconfig_leads_to_the_files() {
        let server = "127.0.0.1:6443".parse().unwrap();
        let config: Value = serde_json::from_str(&kubeconfig(server, Path::new("/p"), "shop", "robot")).unwrap();
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://127.0.0.1:6443");
        assert_eq!(config["users"][0]["user"]["tokenFile"], "/p/token");
        assert_eq!(config["contexts"][0]["context"]["namespace"], "shop");
    }
}
