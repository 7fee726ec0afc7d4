//! The default roles and their bindings
//! (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings>).
//!
//! `data/default-roles.txt` contains those of a real cluster, as `tests/data/default-objects.py` recorded them. Each is
//! a line with its kind and name, followed by those of its rules or subjects:
//!
//! * `ClusterRole NAME`, with `part-of=NAME` if its rules are aggregated into another role, or `aggregated` if it has
//!   the rules of others; `Role NAMESPACE/NAME`.
//! * A rule: verbs, groups (`core` is the one without a name), resources and possibly names of objects; or verbs and
//!   paths.
//! * `ClusterRoleBinding NAME ROLE` and `RoleBinding NAMESPACE/NAME ROLE`, whose role has the same scope.
//! * A subject: `User NAME`, `Group NAME` or `ServiceAccount NAMESPACE/NAME`.
//!
//! There are many of them, and hardly any is ever read. They are therefore written as text, with their owners, and
//! parsed on demand: a value would take ten times the memory, and more time at the start than everything else.

use std::sync::Arc;

use jiff::Timestamp;
use kubewright_apimachinery::random::Random;

use super::access;
use crate::{
    authorizer::{Authorizer, PolicyRule},
    meta,
    storage::{Key, Store, Stored, WriteError},
};

const TABLE: &str = include_str!("../../../data/default-roles.txt");

/// What the role that reads resource metrics adds to others. Its object has other labels, and is
/// [stored](super::resource_metrics::reader_role) before.
const METRICS_READER: &str = "\
ClusterRole system:aggregated-metrics-reader part-of=admin part-of=edit part-of=view
get,list,watch metrics.k8s.io pods,nodes";

const GROUP: &str = "rbac.authorization.k8s.io";
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
/// The label of all these objects, and its value.
const BOOTSTRAPPING: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");
/// The annotation of all these objects, whose value is `true`.
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// The word for the group without a name.
const CORE: &str = "core";

/// The kinds of roles and bindings, and their resources.
const KINDS: [(&str, &str); 4] = [
    ("ClusterRole", "clusterroles"),
    ("ClusterRoleBinding", "clusterrolebindings"),
    ("Role", "roles"),
    ("RoleBinding", "rolebindings"),
];

/// Adds the default roles and bindings that don't exist to a store and to the index of an authorizer. With resource
/// metrics, the role that reads them exists, and those that aggregate it have its rules.
///
/// # Errors
/// Returns the errors of the store.
pub(crate) fn add_roles(
    store: &Store,
    authorizer: &Authorizer,
    random: &Random,
    now: Timestamp,
    has_metrics: bool,
) -> Result<(), WriteError> {
    let (mut entries, now) = (parse(TABLE), meta::time(now));
    if has_metrics {
        entries.extend(parse(METRICS_READER));
        // The rules of an aggregated role are in the order of the names of its parts.
        entries.sort_by_key(|entry| (entry.namespace, entry.name));
    }
    let now = now.as_str().unwrap_or_default();
    for (_, plural) in KINDS {
        let storage = format!("{GROUP}/{plural}").into();
        for entry in entries.iter().filter(|entry| entry.plural == plural) {
            let mut is_new = false;
            let create = |revision| {
                is_new = true;
                let text = entry.text(&entries, &random.uuid(), revision, now);
                let labels: Vec<_> = entry.labels().collect();
                Stored::from_text(revision, text.as_bytes(), API_VERSION, labels.iter().map(|(k, v)| (&**k, *v)))
            };
            store.add(&storage, &Key::new(entry.namespace, entry.name), create)?;
            if is_new {
                entry.index(&entries, authorizer);
            }
        }
    }
    Ok(())
}

/// Returns the rules of a default cluster role, whatever its object says.
pub(super) fn rules_of(role: &str) -> Vec<PolicyRule> {
    let entries = parse(TABLE);
    let role = entries.iter().find(|entry| (entry.kind, entry.name) == (KINDS[0].0, role));
    role.map_or_else(Vec::new, |role| role.rules(&entries).into_iter().map(parse_rule).collect())
}

/// A role or binding of the table.
#[derive(Debug)]
struct Entry<'a> {
    kind: &'static str,
    plural: &'static str,
    /// Empty for the whole cluster.
    namespace: &'a str,
    name: &'a str,
    /// What follows the name: a role, or how the role is aggregated.
    words: Vec<&'a str>,
    /// The rules or subjects.
    lines: Vec<&'a str>,
}

fn parse(table: &str) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let first = words.next().unwrap_or_default();
        if let Some((kind, plural)) = KINDS.into_iter().find(|(kind, _)| *kind == first) {
            let (namespace, name) = split_name(words.next().unwrap_or_default());
            entries.push(Entry { kind, plural, namespace, name, words: words.collect(), lines: Vec::new() });
        } else if let Some(entry) = entries.last_mut() {
            entry.lines.push(line);
        }
    }
    entries
}

/// Splits `NAMESPACE/NAME`. Without a namespace, it is empty.
fn split_name(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("", name))
}

impl Entry<'_> {
    /// Returns the kind of the role that a binding refers to; `None` for a role.
    fn role_kind(&self) -> Option<&'static str> {
        self.kind.strip_suffix("Binding")
    }

    /// Returns the role that a binding refers to.
    fn role(&self) -> &str {
        self.words.first().copied().unwrap_or_default()
    }

    fn is_aggregated(&self) -> bool {
        self.words.contains(&"aggregated")
    }

    /// Returns the roles into which this one is aggregated.
    fn targets(&self) -> impl Iterator<Item = &str> {
        self.words.iter().filter_map(|word| word.strip_prefix("part-of="))
    }

    /// Returns the labels, in order.
    fn labels(&self) -> impl Iterator<Item = (String, &'static str)> {
        let aggregation = self.targets().map(|target| (aggregation_label(target), "true"));
        std::iter::once((BOOTSTRAPPING.0.to_owned(), BOOTSTRAPPING.1)).chain(aggregation)
    }

    /// Returns the lines of the rules of a role. Those of an aggregated role are what the controller of such roles
    /// writes: the rules of its parts, by name, each once.
    fn rules<'a>(&'a self, all: &'a [Entry<'a>]) -> Vec<&'a str> {
        if !self.is_aggregated() {
            return self.lines.clone();
        }
        let mut rules = Vec::new();
        let parts = all.iter().filter(|part| part.targets().any(|target| target == self.name));
        for rule in parts.flat_map(|part| part.rules(all)) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        rules
    }

    /// Returns the subjects of a binding: kind, namespace and name.
    fn subjects(&self) -> impl Iterator<Item = [&str; 3]> {
        self.lines.iter().filter_map(|line| {
            let (kind, name) = line.split_once(' ')?;
            let (namespace, name) = split_name(name);
            Some([kind, namespace, name])
        })
    }

    /// Adds the role or binding to the index of an authorizer.
    fn index(&self, all: &[Entry<'_>], authorizer: &Authorizer) {
        let key = (Arc::from(self.namespace), Arc::from(self.name));
        match self.role_kind() {
            Some(kind) => {
                let role = (kind, self.role());
                let binding = access::described_binding(self.namespace, self.name, role, self.subjects());
                authorizer.roles().set_binding(&key, Some(binding));
            }
            None => authorizer.roles().set_role(&key, Some(self.rules(all).into_iter().map(parse_rule).collect())),
        }
    }

    /// Returns the object as it is stored: complete, and with the fields in their declared order.
    fn text(&self, all: &[Entry<'_>], uid: &str, revision: u64, now: &str) -> String {
        let Self { kind, namespace, name, .. } = self;
        let label = |(key, value): (String, &str)| format!("{key:?}:{value:?}");
        let labels = joined(self.labels().map(label));
        let namespace = if namespace.is_empty() { String::new() } else { format!(r#""namespace":"{namespace}","#) };
        format!(
            r#"{{"kind":"{kind}","apiVersion":"{API_VERSION}","metadata":{{"name":"{name}",{namespace}"uid":"{uid}","resourceVersion":"{revision}","creationTimestamp":"{now}","labels":{{{labels}}},"annotations":{{"{AUTOUPDATE}":"true"}},"managedFields":[{}]}},{}}}"#,
            self.managed_fields(now),
            self.content(all),
        )
    }

    /// Returns the owners of the fields: the API server, and the controller of aggregated roles for their rules.
    fn managed_fields(&self, now: &str) -> String {
        let labels = joined(self.labels().map(|(label, _)| format!(r#""f:{label}":{{}}"#)));
        let metadata = format!(
            r#""f:metadata":{{"f:annotations":{{".":{{}},"f:{AUTOUPDATE}":{{}}}},"f:labels":{{".":{{}},{labels}}}}}"#
        );
        let fields = match self.role_kind() {
            Some(_) if self.lines.is_empty() => format!(r#"{metadata},"f:roleRef":{{}}"#),
            Some(_) => format!(r#"{metadata},"f:roleRef":{{}},"f:subjects":{{}}"#),
            None if self.is_aggregated() => {
                format!(r#""f:aggregationRule":{{".":{{}},"f:clusterRoleSelectors":{{}}}},{metadata}"#)
            }
            None => format!(r#"{metadata},"f:rules":{{}}"#),
        };
        let entry = |manager: &str, operation: &str, fields: &str| {
            format!(
                r#"{{"manager":"{manager}","operation":"{operation}","apiVersion":"{API_VERSION}","time":"{now}","fieldsType":"FieldsV1","fieldsV1":{{{fields}}}}}"#
            )
        };
        let of_server = entry("kube-apiserver", "Update", &fields);
        if !self.is_aggregated() {
            return of_server;
        }
        format!("{},{of_server}", entry("clusterrole-aggregation-controller", "Apply", r#""f:rules":{}"#))
    }

    /// Returns the fields after the metadata.
    fn content(&self, all: &[Entry<'_>]) -> String {
        let mut text = String::new();
        if let Some(kind) = self.role_kind() {
            let subjects = joined(self.subjects().map(|[kind, namespace, name]| match namespace {
                "" => format!(r#"{{"kind":"{kind}","apiGroup":"{GROUP}","name":"{name}"}}"#),
                _ => format!(r#"{{"kind":"{kind}","name":"{name}","namespace":"{namespace}"}}"#),
            }));
            if !subjects.is_empty() {
                text += &format!(r#""subjects":[{subjects}],"#);
            }
            text += &format!(r#""roleRef":{{"apiGroup":"{GROUP}","kind":"{kind}","name":"{}"}}"#, self.role());
            return text;
        }
        text += &format!(r#""rules":[{}]"#, joined(self.rules(all).into_iter().map(rule_json)));
        if self.is_aggregated() {
            let label = aggregation_label(self.name);
            text +=
                &format!(r#","aggregationRule":{{"clusterRoleSelectors":[{{"matchLabels":{{"{label}":"true"}}}}]}}"#);
        }
        text
    }
}

fn aggregation_label(role: &str) -> String {
    format!("{GROUP}/aggregate-to-{role}")
}

/// Joins items by commas.
fn joined(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(",")
}

/// Returns a rule as JSON, with the fields in their declared order.
fn rule_json(line: &str) -> String {
    let list = |items: &str| items.replace(',', r#"",""#);
    match *line.split(' ').collect::<Vec<_>>() {
        [verbs, paths] => format!(r#"{{"verbs":["{}"],"nonResourceURLs":["{}"]}}"#, list(verbs), list(paths)),
        [verbs, groups, resources, ref names @ ..] => {
            let (verbs, resources) = (list(verbs), list(resources));
            let groups = groups.split(',').map(|group| if group == CORE { "" } else { group }).collect::<Vec<_>>();
            let groups = groups.join(r#"",""#);
            let names: String = names.iter().map(|names| format!(r#","resourceNames":["{}"]"#, list(names))).collect();
            format!(r#"{{"verbs":["{verbs}"],"apiGroups":["{groups}"],"resources":["{resources}"]{names}}}"#)
        }
        _ => String::new(),
    }
}

fn parse_rule(line: &str) -> PolicyRule {
    let group = |group: &str| if group == CORE { String::new() } else { group.to_owned() };
    let items = |list: &str| list.split(',').map(str::to_owned).collect();
    let mut rule = PolicyRule::default();
    match *line.split(' ').collect::<Vec<_>>() {
        [verbs, paths] => (rule.verbs, rule.paths) = (items(verbs), items(paths)),
        [verbs, groups, resources, ref names @ ..] => {
            (rule.verbs, rule.resources) = (items(verbs), items(resources));
            rule.groups = groups.split(',').map(group).collect();
            rule.names = names.iter().copied().flat_map(items).collect();
        }
        _ => {}
    }
    rule
}
