//! Explanation of the state of an object, from the API server and from the traces of its operator.
//!
//! [`about`], [`children`] and [`KeyPage::explain`] convert values into sentences; [`fetch`] queries the operators, and
//! [`gather`] the API server.

mod about;
mod children;
mod fetch;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    discovery::{Discovery, Scope, verbs},
};
use kubewright_apimachinery::trace::KeyPage;

use self::fetch::TraceEndpoint;
pub(crate) use self::fetch::{Kubectl, is_reconciling};

/// The object to explain.
#[derive(Clone, Debug)]
pub(crate) struct ExplainOptions {
    /// The kind, as in kubectl: `podset`, `podsets`, `PodSet` or a short name, optionally with its group
    /// (`podset.app.example.com`).
    pub(crate) kind: String,
    /// The name of the object.
    pub(crate) name: String,
    /// The namespace [default: that of the context].
    pub(crate) namespace: Option<String>,
    /// The URL of the operator's traces [default: found by its pods].
    pub(crate) traces: Option<String>,
    /// The URL of the traces of an operator outside of the cluster, from the kubeconfig.
    pub(crate) local_traces: Option<String>,
    /// The kubectl that forwards ports of pods that are not on this machine.
    pub(crate) kubectl: Kubectl,
}

/// The explanation, and the sources that could not be read.
#[derive(Debug, Default)]
pub(crate) struct Explanation {
    pub(crate) sentences: Vec<String>,
    pub(crate) problems: Vec<String>,
}

/// Collects the explanation from the API server and the operators.
pub(crate) async fn gather(client: &Client, options: &ExplainOptions, now: Timestamp) -> Result<Explanation> {
    let discovery = Discovery::new(client.clone()).run().await.context("list the kinds of the API server")?;
    let (resource, scope) = find_kind(client, &discovery, &options.kind).await?;
    let kind = resource.kind.as_str();
    let namespace = options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let namespace = (scope == Scope::Namespaced).then_some(namespace);
    let key = namespace.iter().chain([&options.name]).cloned().collect::<Vec<_>>().join("/");
    let api: Api<DynamicObject> = match &namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let object = api.get_opt(&options.name).await.with_context(|| format!("get {kind} {key}"))?;
    let mut explanation = Explanation::default();
    match &object {
        Some(object) => explanation.sentences.extend(about::object(kind, object, now)),
        None => explanation.sentences.push(format!("There is no {kind} {key}.")),
    }
    let pages = pages(client, options, &resource, &key, &mut explanation.problems).await;
    if let Some(object) = &object {
        for kind in mentioned(&pages, kind) {
            match children(client, &discovery, &kind, object).await {
                Ok(children) => explanation.sentences.extend(children::describe(&kind, &children, now)),
                Err(error) => explanation.problems.push(format!("list objects of kind {kind}: {error}")),
            }
        }
    }
    for page in &pages {
        explanation.sentences.extend(page.explain(object.is_some()));
    }
    if pages.is_empty() && explanation.problems.is_empty() && !is_built_in(&resource.group) {
        explanation.problems.push(format!(
            "no traces of kind {kind}: no running pod with the label {} reconciles it; pass the URL of an operator's probes with --traces",
            fetch::OPERATORS
        ));
    }
    match events(client, namespace.as_deref(), kind, &options.name, object.as_ref()).await {
        Ok(events) => explanation.sentences.extend(about::events(&events, now)),
        Err(error) => explanation.problems.push(format!("list events: {error}")),
    }
    Ok(explanation)
}

/// The short names of resources, by group and plural.
type ShortNames = BTreeMap<(String, String), Vec<String>>;

/// Finds a kind by its name, or else by a short name. Without a group, the name must be unique.
async fn find_kind(client: &Client, discovery: &Discovery, wanted: &str) -> Result<(ApiResource, Scope)> {
    // As in kubectl, the name of one kind takes precedence over a short name of another.
    if let Some(found) = find_named(discovery, &ShortNames::new(), wanted)? {
        return Ok(found);
    }
    let short_names = short_names(client).await.unwrap_or_else(|error| {
        // API servers before Kubernetes 1.27 don't serve this form of discovery.
        tracing::debug!(%error, "can't list the short names of kinds");
        ShortNames::new()
    });
    find_named(discovery, &short_names, wanted)?.with_context(|| {
        format!("the API server has no kind {wanted}: check its name with kubectl api-resources, and that its CustomResourceDefinition is installed")
    })
}

fn find_named(discovery: &Discovery, short_names: &ShortNames, wanted: &str) -> Result<Option<(ApiResource, Scope)>> {
    let mut found = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let short = short_names.get(&(resource.group.clone(), resource.plural.clone()));
            if is_meant(wanted, &resource, short.map(Vec::as_slice).unwrap_or_default()) {
                found.push((resource, capabilities.scope));
            }
        }
    }
    if found.len() > 1 {
        let names: Vec<_> = found.iter().map(|(resource, _)| full_name(resource)).collect();
        bail!("{wanted} is the name of several kinds: choose one of {}", names.join(", "));
    }
    Ok(found.pop())
}

/// Reads the short names, which [`Discovery`] leaves out.
async fn short_names(client: &Client) -> Result<ShortNames, kube::Error> {
    let core = client.list_core_api_versions_aggregated().await?;
    let groups = client.list_api_groups_aggregated().await?;
    let mut names = ShortNames::new();
    for group in core.items.into_iter().chain(groups.items) {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        for resource in group.versions.into_iter().flat_map(|version| version.resources) {
            let key = (name.clone(), resource.resource.unwrap_or_default());
            names.entry(key).or_default().extend(resource.short_names);
        }
    }
    Ok(names)
}

fn full_name(resource: &ApiResource) -> String {
    if resource.group.is_empty() { resource.plural.clone() } else { format!("{}.{}", resource.plural, resource.group) }
}

fn is_meant(wanted: &str, resource: &ApiResource, short_names: &[String]) -> bool {
    let (name, group) = wanted.split_once('.').map_or((wanted, None), |(name, group)| (name, Some(group)));
    let is_name =
        [&resource.kind, &resource.plural].into_iter().chain(short_names).any(|known| name.eq_ignore_ascii_case(known));
    let is_group = |group: &str| {
        group == resource.group || group.strip_prefix(&format!("{}.", resource.version)) == Some(&resource.group)
    };
    is_name && group.is_none_or(is_group)
}

/// Returns whether a group is built into Kubernetes. No operator is expected for its kinds.
fn is_built_in(group: &str) -> bool {
    !group.contains('.') || group.ends_with(".k8s.io")
}

/// Returns the other kinds in the runs of an operator, which include the kinds of the children.
fn mentioned(pages: &[KeyPage], own: &str) -> BTreeSet<String> {
    let runs = || pages.iter().flat_map(|page| &page.runs);
    let read = runs().flat_map(|run| &run.reads).map(|read| &read.kind);
    let written = runs().flat_map(|run| &run.writes).map(|write| &write.kind);
    let woke = runs().flat_map(|run| &run.triggers).filter_map(|trigger| trigger.kind.as_ref());
    read.chain(written)
        .chain(woke)
        .filter(|kind| *kind != own && *kind != "Event")
        .map(|kind| kind.clone().into_owned())
        .collect()
}

/// Lists the objects of a kind, in any group, that are owned by an object.
async fn children(
    client: &Client,
    discovery: &Discovery,
    kind: &str,
    owner: &DynamicObject,
) -> Result<Vec<DynamicObject>, kube::Error> {
    let (uid, namespace) = (owner.uid(), owner.namespace());
    let mut children = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if resource.kind != kind || !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let api: Api<DynamicObject> = match &namespace {
                Some(namespace) if capabilities.scope == Scope::Namespaced => {
                    Api::namespaced_with(client.clone(), namespace, &resource)
                }
                _ => Api::all_with(client.clone(), &resource),
            };
            let all = api.list(&ListParams::default()).await?;
            let is_child =
                |object: &DynamicObject| object.owner_references().iter().any(|by| Some(&by.uid) == uid.as_ref());
            children.extend(all.items.into_iter().filter(is_child));
        }
    }
    Ok(children)
}

async fn pages(
    client: &Client,
    options: &ExplainOptions,
    kind: &ApiResource,
    key: &str,
    problems: &mut Vec<String>,
) -> Vec<KeyPage> {
    let endpoints = match &options.traces {
        Some(address) => vec![TraceEndpoint::Address(address.clone())],
        None => match fetch::operators(client).await {
            Ok(endpoints) => endpoints,
            Err(error) => {
                problems.push(format!(
                    "list the pods of operators: {error}; pass the URL of an operator's probes with --traces"
                ));
                return Vec::new();
            }
        },
    };
    let local_traces = options.local_traces.clone().filter(|_| options.traces.is_none()).map(TraceEndpoint::Address);
    let mut pages = Vec::new();
    for endpoint in endpoints.iter().chain(&local_traces) {
        match fetch::pages(&options.kubectl, endpoint, kind, key).await {
            Ok(found) => pages.extend(found),
            Err(error) => problems.push(format!("get traces from {endpoint}: {error:#}")),
        }
    }
    fetch::best(pages)
}

/// Lists the events of an object, omitting those of earlier objects of the same name.
async fn events(
    client: &Client,
    namespace: Option<&str>,
    kind: &str,
    name: &str,
    object: Option<&DynamicObject>,
) -> Result<Vec<Event>, kube::Error> {
    // Events of cluster-scoped objects are in the namespace `default`.
    let api = Api::<Event>::namespaced(client.clone(), namespace.unwrap_or("default"));
    let wanted = format!("involvedObject.name={name},involvedObject.kind={kind}");
    let mut events = api.list(&ListParams::default().fields(&wanted)).await?.items;
    let uid = object.and_then(ResourceExt::uid);
    events.retain(|event| uid.is_none() || event.involved_object.uid.is_none() || event.involved_object.uid == uid);
    Ok(events)
}

#[cfg(test)]
mod tests {
    use kubewright_cluster::{Cluster, Pods};

    use super::*;

    #[test]
    fn kinds_are_named_as_for_kubectl() {
        let resource = ApiResource {
            group: "app.example.com".into(),
            version: "v1alpha1".into(),
            api_version: "app.example.com/v1alpha1".into(),
            kind: "PodSet".into(),
            plural: "podsets".into(),
        };
        for name in ["podset", "PodSet", "podsets", "podset.app.example.com", "podsets.v1alpha1.app.example.com"] {
            assert!(is_meant(name, &resource, &[]), "{name}");
        }
        for name in ["pods", "podset.example.com", "podset.v1.app.example.com"] {
            assert!(!is_meant(name, &resource, &[]), "{name}");
        }
        let short_names = ["ps".to_owned()];
        for name in ["ps", "ps.app.example.com", "podsets"] {
            assert!(is_meant(name, &resource, &short_names), "{name}");
        }
        for name in ["p", "ps.example.com"] {
            assert!(!is_meant(name, &resource, &short_names), "{name}");
        }
        assert_eq!(full_name(&resource), "podsets.app.example.com");
    }

    #[tokio::test]
    async fn kinds_are_found_by_their_short_names() {
        let cluster = Cluster::builder().pods(Pods::None).start().await.unwrap();
        let client = cluster.client();
        let discovery = Discovery::new(client.clone()).run().await.unwrap();
        for (name, plural) in [
            ("deploy", "deployments.apps"),
            ("deploy.apps", "deployments.apps"),
            ("po", "pods"),
            ("pod", "pods"),
            ("crd", "customresourcedefinitions.apiextensions.k8s.io"),
        ] {
            let (resource, _) = find_kind(&client, &discovery, name).await.unwrap();
            assert_eq!(full_name(&resource), plural);
        }
        // `all` is a category.
        for name in ["all", "deploy.batch", "cow"] {
            let refused = find_kind(&client, &discovery, name).await.unwrap_err().to_string();
            assert!(refused.starts_with(&format!("the API server has no kind {name}: ")), "{refused}");
        }
        cluster.shutdown().await;
    }
}
