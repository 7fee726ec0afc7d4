//! Joining rules, in the steps of controller-gen's `NormalizeRules`: verbs of one resource, then resources with the
//! same verbs, then groups, then paths.

use std::collections::{BTreeMap, BTreeSet};

use kubewright_apimachinery::description::{Rule, Verb};
use serde_json::{Map, Value, json};

type Texts = BTreeSet<String>;

/// Joins and sorts the rules of a role.
pub(super) fn join(rules: Vec<Rule>) -> Vec<Value> {
    let (paths, resources): (Vec<_>, Vec<_>) = rules.into_iter().partition(|rule| !rule.url.is_empty());
    let resource_verbs =
        merged(resources.into_iter().map(|rule| {
            ((rule.names, rule.resource, rule.group), rule.verbs.iter().map(ToString::to_string).collect())
        }));
    let resources = merged(
        resource_verbs
            .into_iter()
            .map(|((names, resource, group), verbs)| ((names, without_included(verbs), group), one(resource))),
    );
    let groups =
        merged(resources.into_iter().map(|((names, verbs, group), resources)| ((names, verbs, resources), one(group))));
    let mut joined: Vec<_> =
        groups.into_iter().map(|((names, verbs, resources), groups)| (groups, resources, names, verbs)).collect();
    joined.sort();
    let mut written: Vec<_> = joined
        .into_iter()
        .map(|(groups, resources, names, verbs)| {
            let parts = [("apiGroups", groups), ("resources", resources), ("resourceNames", names), ("verbs", verbs)];
            let parts = parts.into_iter().filter(|(_, texts)| !texts.is_empty());
            Value::Object(parts.map(|(name, texts)| (name.to_owned(), json!(texts))).collect::<Map<_, _>>())
        })
        .collect();

    let path_verbs: BTreeMap<String, BTreeSet<Verb>> = merged(paths.into_iter().map(|rule| (rule.url, rule.verbs)));
    let urls = merged(
        path_verbs.into_iter().map(|(url, verbs)| (verbs.iter().map(ToString::to_string).collect::<Texts>(), one(url))),
    );
    written.extend(urls.into_iter().map(|(verbs, urls)| json!({"nonResourceURLs": urls, "verbs": verbs})));
    written
}

/// Removes the verbs that `*` includes.
fn without_included(verbs: Texts) -> Texts {
    let all = Verb::All.to_string();
    if verbs.contains(&all) { one(all) } else { verbs }
}

fn one(text: String) -> Texts {
    BTreeSet::from([text])
}

/// Joins the rules with the same key.
fn merged<K: Ord, V: Ord>(parts: impl Iterator<Item = (K, BTreeSet<V>)>) -> BTreeMap<K, BTreeSet<V>> {
    let mut merged: BTreeMap<K, BTreeSet<V>> = BTreeMap::new();
    for (key, values) in parts {
        merged.entry(key).or_default().extend(values);
    }
    merged
}
