//! Why an object is as it is: what the API server has of it and what its operator did, as sentences.
//!
//! [`about`], [`children`] and [`traces`] make the sentences, of values; [`fetch`] asks the operators, and [`gather`] the API server.

mod about;
mod children;
mod fetch;
mod format;
mod page;
mod traces;

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    discovery::{Discovery, Scope, verbs},
};

pub(crate) use self::fetch::{Kubectl, is_reconciling};
use self::{fetch::Place, page::Page};

/// What is asked about.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// A kind as kubectl takes it: `podset`, `podsets`, `PodSet`, with or without its group (`podset.app.example.com`).
    pub(crate) kind: String,
    /// The object's name.
    pub(crate) name: String,
    /// Its namespace, unless it is that of the context.
    pub(crate) namespace: Option<String>,
    /// The URL of the operator's traces, if its pod isn't to be looked for.
    pub(crate) traces: Option<String>,
    /// The URL of the traces of an operator that runs outside of the cluster, if there is one.
    pub(crate) noted: Option<String>,
    /// Forwards ports of pods that aren't on this machine.
    pub(crate) kubectl: Kubectl,
}

/// The answer: sentences, and what could not be asked.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) sentences: Vec<String>,
    pub(crate) troubles: Vec<String>,
}

/// Asks all who may know.
pub(crate) async fn gather(client: &Client, question: &Question, now: Timestamp) -> Result<Answer> {
    let discovery = Discovery::new(client.clone()).run().await.context("ask the API server which kinds it has")?;
    let (resource, scope) = find_kind(&discovery, &question.kind)?;
    let kind = resource.kind.as_str();
    let namespace = question.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let namespace = (scope == Scope::Namespaced).then_some(namespace);
    let key = namespace.iter().chain([&question.name]).cloned().collect::<Vec<_>>().join("/");
    let api: Api<DynamicObject> = match &namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let object = api.get_opt(&question.name).await.with_context(|| format!("get {kind} {key}"))?;
    let mut answer = Answer::default();
    match &object {
        Some(object) => answer.sentences.extend(about::object(kind, object, now)),
        None => answer.sentences.push(format!("There is no {kind} {key}.")),
    }
    let pages = pages(client, question, &resource, &key, &mut answer.troubles).await;
    if let Some(object) = &object {
        for kind in mentioned(&pages, kind) {
            match children(client, &discovery, &kind, object).await {
                Ok(children) => answer.sentences.extend(children::describe(&kind, &children, now)),
                Err(error) => answer.troubles.push(format!("list the objects of the kind {kind}: {error}")),
            }
        }
    }
    for page in &pages {
        answer.sentences.extend(traces::describe(page, object.is_some()));
    }
    if pages.is_empty() && answer.troubles.is_empty() && !is_built_in(&resource.group) {
        answer.troubles.push(format!(
            "no traces of the kind {kind}: no running pod with the label {} reconciles it; pass the URL of an operator's probes with --traces",
            fetch::OPERATORS
        ));
    }
    match events(client, namespace.as_deref(), kind, &question.name, object.as_ref()).await {
        Ok(events) => answer.sentences.extend(about::events(&events, now)),
        Err(error) => answer.troubles.push(format!("list events: {error}")),
    }
    Ok(answer)
}

/// The kind that is meant. Names of several groups have to be told apart.
fn find_kind(discovery: &Discovery, wanted: &str) -> Result<(ApiResource, Scope)> {
    let mut found = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if is_meant(wanted, &resource) {
                found.push((resource, capabilities.scope));
            }
        }
    }
    if found.len() > 1 {
        let names: Vec<_> = found.iter().map(|(resource, _)| full_name(resource)).collect();
        bail!("{wanted} is the name of several kinds: say which of {}", names.join(", "));
    }
    found.pop().with_context(|| {
        format!("the API server has no kind {wanted}: kubectl api-resources lists them; was its definition installed?")
    })
}

fn full_name(resource: &ApiResource) -> String {
    if resource.group.is_empty() { resource.plural.clone() } else { format!("{}.{}", resource.plural, resource.group) }
}

fn is_meant(wanted: &str, resource: &ApiResource) -> bool {
    let (name, group) = wanted.split_once('.').map_or((wanted, None), |(name, group)| (name, Some(group)));
    let is_name = name.eq_ignore_ascii_case(&resource.kind) || name.eq_ignore_ascii_case(&resource.plural);
    let is_group = |group: &str| {
        group == resource.group || group.strip_prefix(&format!("{}.", resource.version)) == Some(&resource.group)
    };
    is_name && group.is_none_or(is_group)
}

/// Whether kinds of this group are Kubernetes' own, so that no operator need tell of them.
fn is_built_in(group: &str) -> bool {
    !group.contains('.') || group.ends_with(".k8s.io")
}

/// The kinds that an operator has had to do with for the object, its own left out: those of its children are among them.
fn mentioned(pages: &[Page], own: &str) -> BTreeSet<String> {
    let runs = || pages.iter().flat_map(|page| &page.runs);
    let read = runs().flat_map(|run| &run.reads).map(|read| &read.kind);
    let written = runs().flat_map(|run| &run.writes).map(|write| &write.kind);
    let woke = runs().flat_map(|run| &run.triggers).filter_map(|trigger| trigger.kind.as_ref());
    read.chain(written).chain(woke).filter(|kind| *kind != own && *kind != "Event").cloned().collect()
}

/// The objects of a kind, whatever its group, that the object owns.
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
    question: &Question,
    kind: &ApiResource,
    key: &str,
    troubles: &mut Vec<String>,
) -> Vec<Page> {
    let places = match &question.traces {
        Some(address) => vec![Place::Address(address.clone())],
        None => match fetch::operators(client).await {
            Ok(places) => places,
            Err(error) => {
                troubles.push(format!(
                    "list the pods of operators: {error}; pass the URL of an operator's probes with --traces"
                ));
                return Vec::new();
            }
        },
    };
    let noted = question.noted.clone().filter(|_| question.traces.is_none()).map(Place::Address);
    let mut pages = Vec::new();
    for place in places.iter().chain(&noted) {
        match fetch::pages(&question.kubectl, place, kind, key).await {
            Ok(found) => pages.extend(found),
            Err(error) => troubles.push(format!("ask {place}: {error:#}")),
        }
    }
    fetch::best(pages)
}

/// The events about the object, and about no other that had its name before.
async fn events(
    client: &Client,
    namespace: Option<&str>,
    kind: &str,
    name: &str,
    object: Option<&DynamicObject>,
) -> Result<Vec<Event>, kube::Error> {
    // Events about what has no namespace are kept in that of the name default.
    let api = Api::<Event>::namespaced(client.clone(), namespace.unwrap_or("default"));
    let wanted = format!("involvedObject.name={name},involvedObject.kind={kind}");
    let mut events = api.list(&ListParams::default().fields(&wanted)).await?.items;
    let uid = object.and_then(ResourceExt::uid);
    events.retain(|event| uid.is_none() || event.involved_object.uid.is_none() || event.involved_object.uid == uid);
    Ok(events)
}

#[cfg(test)]
mod tests {
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
            assert!(is_meant(name, &resource), "{name}");
        }
        for name in ["pods", "podset.example.com", "podset.v1.app.example.com"] {
            assert!(!is_meant(name, &resource), "{name}");
        }
        assert_eq!(full_name(&resource), "podsets.app.example.com");
    }
}
