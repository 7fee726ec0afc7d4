//! The rights that an operator declares, and uses.

use kubewright::manager::Manager;
use kubewright_cluster::faults::{ApiRequest, Verb};
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Role {
    rules: Vec<Rule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
}

/// The rules of the generated roles.
#[derive(Debug)]
pub(super) struct Rights(Vec<Rule>);

impl Rights {
    /// Returns the rules that `kubewright manifests` generates for an operator.
    pub(super) fn of(manager: &Manager) -> Result<Self, Box<dyn std::error::Error>> {
        let described = serde_json::to_string(&manager.describe().document()?)?;
        let described = kubewright_apimachinery::description::Description::read(&described)?;
        let made = kubewright_manifests::generate(&described, &kubewright_manifests::Options::default())?;
        let mut rules = Vec::new();
        for file in made.files.iter().filter(|file| file.path.starts_with("config/rbac/")) {
            for document in file.text.split("\n---\n") {
                rules.extend(serde_saphyr::from_str::<Role>(document).unwrap_or_default().rules);
            }
        }
        Ok(Self(rules))
    }

    /// Returns the verb and resource of a request that no rule allows. Leases belong to the leader election.
    pub(super) fn lacks(&self, request: &ApiRequest) -> Option<String> {
        let verb = match request.verb {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        };
        let has = |known: &[String], wanted: &str| known.iter().any(|it| it == wanted || it == "*");
        let allows = |rule: &Rule| {
            has(&rule.api_groups, &request.group) && has(&rule.resources, &request.resource) && has(&rule.verbs, verb)
        };
        let is_allowed = request.resource == "leases" || self.0.iter().any(allows);
        (!is_allowed).then(|| format!("{verb} {}", request.resource))
    }
}
