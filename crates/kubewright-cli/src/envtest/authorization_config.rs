//! The file of `--authorization-config`
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/#using-configuration-file-for-authorization>).

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use kubewright_apimachinery::{
    cel::{Expected, MatchConditions, PolicyDeclarations, Refusal},
    clock::SharedClock,
};
use kubewright_cluster::AuthorizationMode;
use serde::Deserialize;

use super::{
    api_server::read,
    authorization::mode_of_name,
    flags::Flags,
    reviewers::{AUTHORIZED_TTL, Access, AccessSettings, UNAUTHORIZED_TTL, review_version},
};
use crate::{
    audit::{go_duration, single_document},
    webhook::TIMEOUT,
};

/// The versions of the file.
const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"];

/// The greatest number of match conditions of a webhook.
const MAX_CONDITIONS: usize = 64;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AuthorizationConfiguration {
    api_version: String,
    kind: String,
    #[serde(default)]
    authorizers: Vec<AuthorizerConfiguration>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AuthorizerConfiguration {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    webhook: Option<WebhookConfiguration>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WebhookConfiguration {
    #[serde(rename = "authorizedTTL", default)]
    authorized_ttl: String,
    #[serde(rename = "unauthorizedTTL", default)]
    unauthorized_ttl: String,
    cache_authorized_requests: Option<bool>,
    cache_unauthorized_requests: Option<bool>,
    timeout: String,
    subject_access_review_version: String,
    #[serde(default)]
    match_condition_subject_access_review_version: String,
    failure_policy: String,
    connection_info: ConnectionInfo,
    #[serde(default)]
    match_conditions: Vec<MatchCondition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConnectionInfo {
    #[serde(rename = "type")]
    kind: String,
    kube_config_file: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MatchCondition {
    expression: String,
}

/// Returns the modes of a file, in their order.
///
/// # Errors
/// If the file can't be read, or if a field has a value that Kubernetes refuses. A webhook within the cluster
/// (`InClusterConfig`) is not supported.
pub(super) async fn modes(path: &str, flags: &Flags, clock: &SharedClock) -> Result<Vec<AuthorizationMode>> {
    let authorizers = parse(&read(path)?).with_context(|| format!("read {path}"))?;
    let mut modes = Vec::new();
    for AuthorizerConfiguration { kind, name, webhook } in authorizers {
        modes.push(match webhook {
            Some(webhook) => {
                let access =
                    webhook.open(clock).await.with_context(|| format!("use the authorizer {name} of {path}"))?;
                AuthorizationMode::Webhook(Arc::new(access))
            }
            None => mode_of_name(&kind, flags).with_context(|| format!("use the authorizer {name} of {path}"))?,
        });
    }
    Ok(modes)
}

/// Returns the authorizers of a file. Those of the type `Webhook`, and no others, have a webhook.
fn parse(text: &str) -> Result<Vec<AuthorizerConfiguration>> {
    let AuthorizationConfiguration { api_version, kind, authorizers } = serde_json::from_value(single_document(text)?)?;
    if kind != "AuthorizationConfiguration" || !VERSIONS.contains(&api_version.as_str()) {
        bail!("it is of {api_version}, kind {kind}, instead of {}, kind AuthorizationConfiguration", VERSIONS[0]);
    }
    if authorizers.is_empty() {
        bail!("authorizers: at least one authorization mode must be defined");
    }
    let (mut kinds, mut names) = (BTreeSet::new(), BTreeSet::new());
    for AuthorizerConfiguration { kind, name, webhook } in &authorizers {
        if name.is_empty() || !names.insert(name) {
            bail!("authorizers: the name {name:?} is empty, or that of another one");
        }
        if (kind == "Webhook") != webhook.is_some() {
            bail!("authorizers: {name} has the type {kind}, and only those of the type Webhook have a webhook");
        }
        if kind != "Webhook" && !kinds.insert(kind) {
            bail!("authorizers: {name} has the type {kind}, as another one has");
        }
    }
    Ok(authorizers)
}

impl WebhookConfiguration {
    async fn open(&self, clock: &SharedClock) -> Result<Access> {
        let timeout = go_duration(&self.timeout).map_err(anyhow::Error::msg).context("read its timeout")?;
        if timeout.is_zero() || timeout > TIMEOUT {
            bail!("its timeout {} must be more than 0s and at most 30s", self.timeout);
        }
        let denies_on_failure = match self.failure_policy.as_str() {
            "Deny" => true,
            "NoOpinion" => false,
            other => bail!("its failurePolicy {other:?} is not supported: use NoOpinion or Deny"),
        };
        let version = review_version(&self.subject_access_review_version).context("read its version of reviews")?;
        let kept = |ttl: &str, is_cached: Option<bool>, default: Duration| match is_cached {
            Some(false) => Ok(Duration::ZERO),
            _ if ttl.is_empty() => Ok(default),
            _ => go_duration(ttl).map_err(anyhow::Error::msg).with_context(|| format!("read its TTL {ttl}")),
        };
        let settings = AccessSettings {
            kubeconfig: self.connection_info.file()?,
            version,
            keep: [
                kept(&self.authorized_ttl, self.cache_authorized_requests, AUTHORIZED_TTL)?,
                kept(&self.unauthorized_ttl, self.cache_unauthorized_requests, UNAUTHORIZED_TTL)?,
            ],
            timeout,
            conditions: self.conditions()?,
            denies_on_failure,
        };
        Access::open(settings, clock).await
    }

    fn conditions(&self) -> Result<MatchConditions> {
        let expressions = || self.match_conditions.iter().map(|condition| condition.expression.as_str());
        let version = self.match_condition_subject_access_review_version.as_str();
        if version != "v1" && !(version.is_empty() && self.match_conditions.is_empty()) {
            bail!("its matchConditionSubjectAccessReviewVersion {version:?} must be v1");
        }
        if self.match_conditions.len() > MAX_CONDITIONS {
            bail!("it has {} match conditions: use at most {MAX_CONDITIONS}", self.match_conditions.len());
        }
        let (declarations, mut known) = (PolicyDeclarations::of_authorizer(), BTreeSet::new());
        for expression in expressions() {
            if expression.trim().is_empty() || !known.insert(expression) {
                bail!("its match condition {expression:?} is empty, or that of another one");
            }
            if let Err(Refusal::Expression(why) | Refusal::Program(why)) =
                declarations.check(expression, Expected::Bool)
            {
                bail!("its match condition {expression} can't be used: {why}");
            }
        }
        Ok(MatchConditions::new(expressions()))
    }
}

impl ConnectionInfo {
    /// Returns the path of the kubeconfig.
    fn file(&self) -> Result<&str> {
        match (self.kind.as_str(), &self.kube_config_file) {
            ("KubeConfigFile", Some(path)) if Path::new(path).is_absolute() => Ok(path),
            ("KubeConfigFile", path) => {
                bail!("its kubeConfigFile {:?} is not an absolute path", path.as_deref().unwrap_or_default())
            }
            (other, _) => bail!("its connection by {other:?} is not supported: use KubeConfigFile"),
        }
    }
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::clock::SystemClock;

    use super::*;

    fn file(authorizers: &str) -> String {
        format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: {authorizers}")
    }

    /// Returns the error about a file, with the changes of its webhook.
    async fn refusal(changes: &[(&str, &str)]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(
            &kubeconfig,
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n\
             clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9/a'}}]\nusers: [{name: u, user: {}}]\n",
        )
        .unwrap();
        let webhook = format!(
            "[{{type: Webhook, name: w, webhook: {{timeout: 3s, failurePolicy: Deny, subjectAccessReviewVersion: v1, \
             matchConditionSubjectAccessReviewVersion: v1, matchConditions: [{{expression: 'has(request.uid)'}}], \
             connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {}}}}}}}]",
            kubeconfig.display()
        );
        let webhook = changes.iter().fold(webhook, |text, (before, after)| {
            assert!(text.contains(before), "{before}");
            text.replace(before, after)
        });
        let path = folder.path().join("config.yaml");
        std::fs::write(&path, file(&webhook)).unwrap();
        let opened = modes(path.to_str().unwrap(), &Flags::default(), &SystemClock::shared()).await;
        opened.map_or_else(|error| format!("{error:#}"), |modes| format!("{} modes", modes.len()))
    }

    #[tokio::test]
    async fn webhooks_have_the_fields_that_kubernetes_accepts() {
        assert_eq!(refusal(&[]).await, "1 modes");
        for (before, after, expect) in [
            ("timeout: 3s", "timeout: 31s", "must be more than 0s and at most 30s"),
            ("failurePolicy: Deny", "failurePolicy: Fail", "use NoOpinion or Deny"),
            ("ReviewVersion: v1, match", "ReviewVersion: v2, match", "use v1 or v1beta1"),
            ("matchConditionSubjectAccessReviewVersion: v1, ", "", "must be v1"),
            ("has(request.uid)", "has(", "its match condition has( can't be used: compilation failed"),
            ("has(request.uid)", "request.name == request.uid", "undefined field 'name'"),
            ("has(request.uid)", "request.groups", "must evaluate to bool but got list(string)"),
            ("has(request.uid)", "object == null", "undeclared reference to 'object'"),
            ("'has(request.uid)'}", "'true'}, {expression: 'true'}", "that of another one"),
            ("type: KubeConfigFile", "type: InClusterConfig", "use KubeConfigFile"),
            ("kubeConfigFile: /", "kubeConfigFile: ", "is not an absolute path"),
            ("timeout: 3s", "timeout: 3s, other: 1", "unknown field `other`"),
        ] {
            let error = refusal(&[(before, after)]).await;
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn authorizers_differ_in_their_names_and_types() {
        for (authorizers, expect) in [
            ("[]", "at least one"),
            ("[{type: RBAC, name: ''}]", "is empty"),
            ("[{type: RBAC, name: a}, {type: Node, name: a}]", "that of another one"),
            ("[{type: RBAC, name: a}, {type: RBAC, name: b}]", "as another one has"),
            ("[{type: Webhook, name: a}]", "only those of the type Webhook"),
        ] {
            let error = parse(&file(authorizers)).err().unwrap().to_string();
            assert!(error.contains(expect), "{error}");
        }
        let names = |text: &str| parse(text).map(|all| all.into_iter().map(|one| one.name).collect::<Vec<_>>());
        assert_eq!(names(&file("[{type: Node, name: nodes}, {type: RBAC, name: roles}]")).unwrap(), ["nodes", "roles"]);
        assert!(names("kind: Pod\napiVersion: v1").unwrap_err().to_string().contains("kind Pod"));
    }
}
