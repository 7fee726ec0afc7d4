//! Service accounts, and what pods get from theirs: pull secrets, and the volume with their token
//! (<https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#serviceaccount-admission-controller>).

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use kubewright_apimachinery::{go_format, pointer, random::Random};
use parking_lot::RwLock;
use serde_json::{Value, json};

use super::{
    pod_references,
    validation::{entry, items, optional_string, string},
};
use crate::{
    fields::{each, has, list, remove, set, text},
    registry::Strategy,
};

/// The account of a pod that names none, which a controller creates in each namespace.
const DEFAULT: &str = "default";
/// The prefix of the name of the token's volume, and the number of random characters after it.
const VOLUME: (&str, usize) = ("kube-api-access-", 5);
/// The path at which the token's volume is mounted.
const PLACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The lifetime of tokens in seconds. The seven seconds mark tokens that were not asked for.
const LIFE: i64 = 3607;
/// The annotation of an account whose pods may only refer to the Secrets that it lists.
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
/// The annotation of a pod that a node runs from a file, and shows in the API.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The part of a service account that matters to pods.
#[derive(Clone, Debug, Default, PartialEq)]
struct Account {
    automount: Option<bool>,
    pull_secrets: Vec<String>,
    /// The Secrets that pods may refer to, if that is enforced.
    mountable: Option<Vec<String>>,
}

impl Account {
    fn of(account: &Value) -> Self {
        let names = |field| items(account, field).iter().map(|one| string(one, "name").to_owned()).collect();
        let enforced = entry(&account["metadata"], "annotations", ENFORCE)
            .is_some_and(|value| go_format::parse_bool(value) == Some(true));
        Self {
            automount: account["automountServiceAccountToken"].as_bool(),
            pull_secrets: names("imagePullSecrets"),
            mountable: enforced.then(|| names("secrets")),
        }
    }
}

/// All service accounts, by namespace and name, and the admission of pods by them.
#[derive(Debug, Default)]
pub(crate) struct ServiceAccounts {
    accounts: RwLock<BTreeMap<String, BTreeMap<String, Account>>>,
    /// The source of the names of volumes, if pods are admitted by their accounts.
    random: OnceLock<Random>,
}

impl ServiceAccounts {
    /// Admits pods by their accounts from now on.
    pub(crate) fn enable(&self, random: Random) {
        self.random.get_or_init(|| random);
    }

    fn find(&self, namespace: &str, name: &str) -> Option<Account> {
        self.accounts.read().get(namespace)?.get(name).cloned()
    }

    fn replace(&self, before: Option<&Value>, after: Option<&Value>) {
        let Some(account) = after.or(before) else { return };
        let (namespace, name) = (text(account, "/metadata/namespace"), text(account, "/metadata/name"));
        let mut accounts = self.accounts.write();
        if after.is_some() {
            accounts.entry(namespace.to_owned()).or_default().insert(name.to_owned(), Account::of(account));
        } else if let Some(present) = accounts.get_mut(namespace) {
            present.remove(name);
            if present.is_empty() {
                accounts.remove(namespace);
            }
        }
    }

    /// Returns whether a new pod needs the default account of its namespace, which doesn't exist yet.
    pub(in crate::registry::builtin) fn is_awaited(&self, pod: &Value) -> bool {
        let name = text(pod, "/spec/serviceAccountName");
        self.random.get().is_some()
            && matches!(name, "" | DEFAULT)
            && !is_mirror(pod)
            && self.find(text(pod, "/metadata/namespace"), DEFAULT).is_none()
    }

    /// Sets the account of a new pod, and adds what it gets from it.
    ///
    /// # Errors
    /// Returns the reason why the pod is forbidden.
    pub(in crate::registry::builtin) fn admit(&self, pod: &mut Value) -> Result<(), String> {
        let Some(random) = self.random.get() else { return Ok(()) };
        if is_mirror(pod) {
            return check_mirror(&pod["spec"]);
        }
        let namespace = text(pod, "/metadata/namespace").to_owned();
        let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) else { return Ok(()) };
        if text(spec, "/serviceAccountName").is_empty() {
            set(spec, "serviceAccountName", DEFAULT);
            set(spec, "serviceAccount", DEFAULT);
        }
        let name = text(spec, "/serviceAccountName").to_owned();
        let account = self.find(&namespace, &name).ok_or_else(|| not_found(&namespace, &name))?;
        if spec["automountServiceAccountToken"].as_bool().or(account.automount).unwrap_or(true) {
            mount_token(spec, random);
        }
        if list(spec, "/imagePullSecrets").is_empty() && !account.pull_secrets.is_empty() {
            let names: Vec<_> = account.pull_secrets.iter().map(|name| json!({"name": name})).collect();
            set(spec, "imagePullSecrets", names);
        }
        match &account.mountable {
            Some(mountable) => check_secrets(spec, &name, mountable, &account.pull_secrets),
            None => Ok(()),
        }
    }

    /// Returns the reason why new ephemeral containers of a pod are forbidden.
    pub(in crate::registry::builtin) fn forbids_ephemeral(&self, pod: &Value) -> Option<String> {
        self.random.get()?;
        let (namespace, name) = (text(pod, "/metadata/namespace"), text(pod, "/spec/serviceAccountName"));
        if name.is_empty() {
            return Some(format!("no service account specified for pod {namespace}/{}", text(pod, "/metadata/name")));
        }
        let Some(account) = self.find(namespace, name) else { return Some(not_found(namespace, name)) };
        let mountable = account.mountable?;
        let containers = items(&pod["spec"], "ephemeralContainers");
        containers.iter().find_map(|one| check_container(one, "ephemeral container", name, &mountable).err())
    }
}

fn not_found(namespace: &str, name: &str) -> String {
    format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found")
}

fn is_mirror(pod: &Value) -> bool {
    entry(&pod["metadata"], "annotations", MIRROR).is_some()
}

/// Checks that a mirror pod has no account and refers to no Secrets, which its node couldn't give it.
fn check_mirror(spec: &Value) -> Result<(), String> {
    if !text(spec, "/serviceAccountName").is_empty() {
        return Err("a mirror pod may not reference service accounts".into());
    }
    if pod_references::secrets(spec).next().is_some() {
        return Err("a mirror pod may not reference secrets".into());
    }
    let is_token = |source: &Value| source.get("serviceAccountToken").is_some_and(Value::is_object);
    if items(spec, "volumes").iter().any(|volume| items(&volume["projected"], "sources").iter().any(is_token)) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections".into());
    }
    Ok(())
}

/// Returns the references of a container's environment to Secrets: the variable, if it is one, and the Secret's name.
fn secrets_of(container: &Value) -> impl Iterator<Item = (Option<&str>, &str)> {
    let variables = items(container, "env").iter().filter_map(|variable| {
        let reference = pointer::get(variable, "/valueFrom/secretKeyRef").filter(|found| found.is_object())?;
        Some((Some(string(variable, "name")), string(reference, "name")))
    });
    let sources = items(container, "envFrom").iter().filter_map(|source| {
        let reference = source.get("secretRef").filter(|found| found.is_object())?;
        Some((None, string(reference, "name")))
    });
    variables.chain(sources)
}

/// Checks that a pod only refers to Secrets that its account lists.
fn check_secrets(spec: &Value, account: &str, mountable: &[String], pull: &[String]) -> Result<(), String> {
    let has = |name: &str| mountable.iter().any(|one| one == name);
    for volume in items(spec, "volumes") {
        let Some(secret) = volume.get("secret").filter(|secret| secret.is_object()) else { continue };
        let name = string(secret, "secretName");
        if !has(name) {
            return Err(format!(
                "volume with secret.secretName=\"{name}\" is not allowed because service account {account} does not \
                 reference that secret"
            ));
        }
    }
    for (field, what) in [("initContainers", "init container"), ("containers", "container")] {
        for container in items(spec, field) {
            check_container(container, what, account, mountable)?;
        }
    }
    for (index, secret) in items(spec, "imagePullSecrets").iter().enumerate() {
        let name = string(secret, "name");
        if !pull.iter().any(|one| one == name) {
            return Err(format!(
                "imagePullSecrets[{index}].name=\"{name}\" is not allowed because service account {account} does not \
                 reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

fn check_container(container: &Value, what: &str, account: &str, mountable: &[String]) -> Result<(), String> {
    let own = string(container, "name");
    for (variable, secret) in secrets_of(container) {
        if mountable.iter().any(|one| one == secret) {
            continue;
        }
        let place = match variable {
            Some(variable) => format!("{what} {own} with envVar {variable}"),
            None => format!("{what} {own} with envFrom"),
        };
        return Err(format!(
            "{place} referencing secret.secretName=\"{secret}\" is not allowed because service account {account} does \
             not reference that secret"
        ));
    }
    Ok(())
}

/// Mounts the token's volume in all containers that have nothing at its path, and adds it unless it exists.
fn mount_token(spec: &mut Value, random: &Random) {
    let mut names = items(spec, "volumes").iter().filter_map(|volume| optional_string(volume, "name"));
    let present = names.find(|name| name.starts_with(VOLUME.0)).map(str::to_owned);
    let is_new = present.is_none();
    let name = present.unwrap_or_else(|| format!("{}{}", VOLUME.0, random.suffix(VOLUME.1)));
    let mut is_needed = false;
    for field in ["initContainers", "containers"] {
        for container in each(spec, field) {
            if items(container, "volumeMounts").iter().any(|mount| string(mount, "mountPath") == PLACE) {
                continue;
            }
            push(container, "volumeMounts", json!({"name": name, "readOnly": true, "mountPath": PLACE}));
            is_needed = true;
        }
    }
    if is_new && is_needed {
        push(
            spec,
            "volumes",
            json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
                {"serviceAccountToken": {"expirationSeconds": LIFE, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                ]}},
            ]}}),
        );
    }
}

fn push(value: &mut Value, field: &str, item: Value) {
    match value.get_mut(field) {
        Some(Value::Array(present)) => present.push(item),
        _ => set(value, field, vec![item]),
    }
}

/// The strategy of service accounts.
#[derive(Debug)]
pub(super) struct ServiceAccountStrategy {
    /// The accounts that pods are admitted by, which this strategy keeps up to date.
    pub(super) accounts: Arc<ServiceAccounts>,
}

/// Removes everything but the names from the references to Secrets, as kube-apiserver does.
fn clean_references(account: &mut Value) {
    for reference in each(account, "secrets") {
        if let Some(fields) = reference.as_object_mut() {
            fields.retain(|field, _| field == "name");
        }
    }
}

impl Strategy for ServiceAccountStrategy {
    /// Removes empty lists, as kube-apiserver does.
    fn default(&self, object: &mut Value) {
        if has(object, "/secrets") && list(object, "/secrets").is_empty() {
            remove(object, "secrets");
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        clean_references(object);
    }

    fn prepare_update(&self, _old: &Value, new: &mut Value) {
        clean_references(new);
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        self.accounts.replace(before, after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(all: &[Value]) -> ServiceAccounts {
        let accounts = ServiceAccounts::default();
        accounts.enable(Random::seeded(1));
        for account in all {
            let mut account = account.clone();
            account["metadata"]["namespace"] = json!("n");
            accounts.replace(None, Some(&account));
        }
        accounts
    }

    fn admit(account: Value, spec: Value) -> Result<Value, String> {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec});
        accounts(&[account]).admit(&mut pod).map(|()| pod["spec"].take())
    }

    fn default() -> Value {
        json!({"metadata": {"name": "default"}})
    }

    #[test]
    fn every_container_gets_the_token() {
        let own = json!({"name": "own", "mountPath": PLACE});
        let spec = json!({
            "containers": [{"name": "a"}, {"name": "b", "volumeMounts": [own]}], "initContainers": [{"name": "i"}],
            "volumes": [{"name": "own", "emptyDir": {}}],
        });
        let spec = admit(default(), spec).unwrap();
        let volume = &spec["volumes"][1];
        let name = volume["name"].as_str().unwrap();
        assert!(name.starts_with(VOLUME.0) && name.len() == VOLUME.0.len() + VOLUME.1, "{name}");
        assert_eq!(volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
        let mount = json!([{"name": name, "readOnly": true, "mountPath": PLACE}]);
        assert_eq!(
            (&spec["containers"][0]["volumeMounts"], &spec["initContainers"][0]["volumeMounts"]),
            (&mount, &mount)
        );
        assert_eq!(spec["containers"][1]["volumeMounts"], json!([own]));
        assert_eq!((&spec["serviceAccountName"], &spec["serviceAccount"]), (&json!("default"), &json!("default")));
    }

    #[test]
    fn pod_and_account_opt_out() {
        let refusing = json!({"metadata": {"name": "default"}, "automountServiceAccountToken": false});
        let has_volume = |account: &Value, spec: Value| {
            let mut spec = spec;
            spec["containers"] = json!([{"name": "c"}]);
            !items(&admit(account.clone(), spec).unwrap(), "volumes").is_empty()
        };
        assert!(!has_volume(&refusing, json!({})));
        assert!(has_volume(&refusing, json!({"automountServiceAccountToken": true})));
        assert!(!has_volume(&default(), json!({"automountServiceAccountToken": false})));
        assert!(has_volume(&default(), json!({})));
    }

    #[test]
    fn a_volume_that_is_there_is_used() {
        let volume = json!({"name": "kube-api-access-own", "emptyDir": {}});
        let spec = admit(default(), json!({"containers": [{"name": "c"}], "volumes": [volume]})).unwrap();
        assert_eq!(spec["volumes"], json!([volume]));
        assert_eq!(spec["containers"][0]["volumeMounts"][0]["name"], "kube-api-access-own");
    }

    #[test]
    fn pull_secrets_are_those_of_the_account_unless_the_pod_has_some() {
        let account = json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "a"}]});
        let spec = admit(account.clone(), json!({})).unwrap();
        assert_eq!(spec["imagePullSecrets"], json!([{"name": "a"}]));
        let spec = admit(account, json!({"imagePullSecrets": [{"name": "b"}]})).unwrap();
        assert_eq!(spec["imagePullSecrets"], json!([{"name": "b"}]));
    }

    #[test]
    fn refusals() {
        let check = |spec: Value, expect: &str| {
            let account = json!({
                "metadata": {"name": "default", "annotations": {ENFORCE: "true"}}, "secrets": [{"name": "good"}],
            });
            assert_eq!(admit(account, spec).unwrap_err(), expect);
        };
        check(
            json!({"serviceAccountName": "x"}),
            "error looking up service account n/x: serviceaccount \"x\" not found",
        );
        check(
            json!({"volumes": [{"name": "v", "secret": {"secretName": "bad"}}]}),
            "volume with secret.secretName=\"bad\" is not allowed because service account default does not reference \
             that secret",
        );
        let reference = |name: &str| json!({"name": "E", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}});
        check(
            json!({"containers": [{"name": "c", "env": [reference("good"), reference("bad")]}]}),
            "container c with envVar E referencing secret.secretName=\"bad\" is not allowed because service account \
             default does not reference that secret",
        );
        check(
            json!({"initContainers": [{"name": "c", "envFrom": [{"secretRef": {"name": "bad"}}]}]}),
            "init container c with envFrom referencing secret.secretName=\"bad\" is not allowed because service account \
             default does not reference that secret",
        );
        check(
            json!({"imagePullSecrets": [{"name": "bad"}]}),
            "imagePullSecrets[0].name=\"bad\" is not allowed because service account default does not reference that \
             imagePullSecret",
        );
    }

    #[test]
    fn mirror_pods_have_no_accounts() {
        let check = |spec: Value, expect: Result<(), &str>| {
            let mut pod = json!({"metadata": {"namespace": "n", "annotations": {MIRROR: "x"}}, "spec": spec});
            assert_eq!(accounts(&[]).admit(&mut pod), expect.map_err(str::to_owned));
            assert_eq!(pod["spec"], spec);
        };
        check(json!({"containers": [{"name": "c"}]}), Ok(()));
        check(json!({"serviceAccountName": "x"}), Err("a mirror pod may not reference service accounts"));
        check(json!({"volumes": [{"secret": {"secretName": "s"}}]}), Err("a mirror pod may not reference secrets"));
        check(json!({"imagePullSecrets": [{"name": "s"}]}), Err("a mirror pod may not reference secrets"));
        check(
            json!({"volumes": [{"projected": {"sources": [{"serviceAccountToken": {}}]}}]}),
            Err("a mirror pod may not use ServiceAccountToken volume projections"),
        );
    }

    #[test]
    fn only_the_default_account_is_awaited() {
        let pod = |name: &str| json!({"metadata": {"namespace": "n"}, "spec": {"serviceAccountName": name}});
        let accounts = accounts(&[]);
        assert!(
            accounts.is_awaited(&pod("")) && accounts.is_awaited(&pod("default")) && !accounts.is_awaited(&pod("x"))
        );
        accounts.replace(None, Some(&json!({"metadata": {"name": "default", "namespace": "n"}})));
        assert!(!accounts.is_awaited(&pod("")));
        assert!(!ServiceAccounts::default().is_awaited(&pod("")), "not admitted by accounts");
    }
}
