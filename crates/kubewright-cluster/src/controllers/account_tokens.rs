//! The tokens of service accounts in Secrets
//! (<https://kubernetes.io/docs/concepts/configuration/secret/#serviceaccount-token-secrets>).
//!
//! A Secret of that type gets a token, the server's certificates and the name of its namespace. It is deleted if its
//! service account doesn't exist. A service account whose Secret is deleted no longer refers to it.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use kubewright_apiserver::{ApiServer, Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    kind::Kind,
    namespace_defaults::CERTIFICATES,
    reconcile::{Controller, Key, Plan, Step},
    value::{list, text},
};

const SECRET: Kind = Kind { group: "", kind: "Secret", plural: "secrets" };
const ACCOUNT: Kind = Kind { group: "", kind: "ServiceAccount", plural: "serviceaccounts" };
const CONFIG_MAP: Kind = Kind { group: "", kind: "ConfigMap", plural: "configmaps" };

const TYPE: &str = "kubernetes.io/service-account-token";
/// The annotations with the name and the UID of the service account.
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";

/// The delay after which signing is tried again if it fails.
const RETRY: Duration = Duration::from_secs(10);

/// The controller of the tokens. Its keys are Secrets.
pub(crate) struct AccountTokens {
    api: ApiServer,
    secrets: BTreeMap<Key, Arc<Value>>,
    accounts: BTreeMap<Key, Arc<Value>>,
    /// The certificates of the server as each namespace publishes them.
    certificates: BTreeMap<String, String>,
}

impl fmt::Debug for AccountTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the tokens.
        f.debug_struct("AccountTokens").field("secrets", &self.secrets.keys()).finish_non_exhaustive()
    }
}

/// Returns an annotation of a Secret.
fn annotation<'a>(secret: &'a Value, name: &str) -> &'a str {
    secret["metadata"]["annotations"][name].as_str().unwrap_or_default()
}

impl AccountTokens {
    pub(crate) fn new(api: ApiServer) -> Self {
        Self { api, secrets: BTreeMap::new(), accounts: BTreeMap::new(), certificates: BTreeMap::new() }
    }

    /// Returns the Secrets of a namespace.
    fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.secrets.range(Key::first_of(namespace)..).take_while(move |(key, _)| key.namespace == namespace)
    }

    fn take_account(&mut self, key: Key, account: &Arc<Value>, gone: bool) -> Vec<Key> {
        if gone {
            self.accounts.remove(&key);
        } else {
            self.accounts.insert(key.clone(), account.clone());
        }
        let own = self.of_namespace(&key.namespace).filter(|(_, secret)| annotation(secret, NAME) == key.name);
        own.map(|(secret, _)| secret.clone()).collect()
    }

    fn take_secret(&mut self, key: Key, secret: &Arc<Value>, gone: bool) -> Vec<Key> {
        if text(secret, "/type") != TYPE {
            return Vec::new();
        }
        if gone {
            self.secrets.remove(&key);
        } else {
            self.secrets.insert(key.clone(), secret.clone());
        }
        vec![key]
    }

    fn take_certificates(&mut self, key: Key, map: &Value, gone: bool) -> Vec<Key> {
        if key.name != CERTIFICATES || gone {
            return Vec::new();
        }
        self.certificates.insert(key.namespace.clone(), text(map, "/data/ca.crt").to_owned());
        self.of_namespace(&key.namespace).map(|(secret, _)| secret.clone()).collect()
    }

    /// Returns the data that a Secret lacks.
    ///
    /// # Errors
    /// If the token can't be signed.
    fn missing(&self, secret: &Value, account: &Value) -> Result<BTreeMap<&'static str, String>, String> {
        let namespace = text(secret, "/metadata/namespace");
        let present = |name: &str| secret["data"][name].as_str().unwrap_or_default();
        let mut missing = BTreeMap::new();
        let certificates = self.certificates.get(namespace).filter(|text| !text.is_empty());
        let certificates = certificates.map(|text| STANDARD.encode(text));
        if let Some(certificates) = certificates.filter(|text| text != present("ca.crt")) {
            missing.insert("ca.crt", certificates);
        }
        if present("namespace").is_empty() {
            missing.insert("namespace", STANDARD.encode(namespace));
        }
        if present("token").is_empty() {
            let token = self.api.sign_secret_token(account, secret).map_err(|status| status.message)?;
            missing.insert("token", STANDARD.encode(token));
        }
        Ok(missing)
    }

    /// Returns the steps that remove the references to a Secret that is gone.
    fn forget(&self, secret: &Key) -> Plan {
        let accounts = self.accounts.range(Key::first_of(&secret.namespace)..);
        let accounts = accounts.take_while(|(key, _)| key.namespace == secret.namespace);
        let is_other = |reference: &&Value| text(reference, "/name") != secret.name;
        let named = accounts.filter(|(_, account)| !list(account, "/secrets").iter().all(|one| is_other(&one)));
        let steps = named.map(|(_, account)| {
            let others: Vec<_> = list(account, "/secrets").iter().filter(is_other).collect();
            Step::change(&ACCOUNT, account, json!({"secrets": others}))
        });
        Plan { steps: steps.collect(), ..Plan::default() }
    }
}

impl Controller for AccountTokens {
    fn reset(&mut self) {
        self.secrets.clear();
        self.accounts.clear();
        self.certificates.clear();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        let Some(kind) = [SECRET, ACCOUNT, CONFIG_MAP].into_iter().find(|kind| kind.is_of(change)) else {
            return Vec::new();
        };
        let (object, gone) = (change.object(), change.kind == ChangeKind::Deleted);
        let Some(key) = Key::of(object) else { return Vec::new() };
        match kind.kind {
            "Secret" => self.take_secret(key, object, gone),
            "ServiceAccount" => self.take_account(key, object, gone),
            _ => self.take_certificates(key, object, gone),
        }
    }

    fn decide(&self, key: &Key, _now: Timestamp) -> Plan {
        let Some(secret) = self.secrets.get(key) else { return self.forget(key) };
        let mut plan = Plan::of(&SECRET, secret);
        let account = Key { namespace: key.namespace.clone(), name: annotation(secret, NAME).into() };
        let uid = annotation(secret, UID);
        let account = self.accounts.get(&account);
        let account = account.filter(|account| uid.is_empty() || uid == text(account, "/metadata/uid"));
        let Some(account) = account else {
            plan.steps.push(Step::delete(&SECRET, secret));
            return plan;
        };
        match self.missing(secret, account) {
            Ok(missing) if missing.is_empty() => {}
            Ok(missing) => {
                let own = json!({NAME: account["metadata"]["name"], UID: account["metadata"]["uid"]});
                let patch = json!({"metadata": {"annotations": own}, "data": missing});
                plan.steps.push(Step::change(&SECRET, secret, patch));
            }
            Err(error) => {
                tracing::warn!(error, ?key, "failed to sign the token of a Secret");
                plan.requeue_after(RETRY);
            }
        }
        plan
    }
}
