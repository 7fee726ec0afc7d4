//! The rules of a flow schema: which requests of which users it is for.

use serde_json::Value;

use crate::{
    auth::{Attributes, UserInfo},
    fields::{list, text},
};

/// Everything that a list can name.
const ALL: &str = "*";

/// A rule of a flow schema.
#[derive(Debug)]
pub(super) struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<Resources>,
    paths: Vec<Paths>,
}

#[derive(Debug)]
enum Subject {
    Anybody,
    User(Box<str>),
    Group(Box<str>),
    /// The service accounts whose user names begin with this.
    ServiceAccounts(Box<str>),
}

/// The names that a list allows.
#[derive(Debug)]
enum Names {
    All,
    These(Vec<Box<str>>),
}

#[derive(Debug)]
struct Resources {
    verbs: Names,
    groups: Names,
    /// With their subresources.
    resources: Names,
    namespaces: Names,
    cluster_scope: bool,
}

#[derive(Debug)]
struct Paths {
    verbs: Names,
    /// Whether all paths match.
    all: bool,
    /// The paths, and the beginnings of further ones.
    paths: Vec<(Box<str>, Box<str>)>,
}

impl Rule {
    /// Returns the rules of a flow schema.
    pub(super) fn all_of(schema: &Value) -> Vec<Self> {
        list(schema, "/spec/rules").iter().map(Self::of).collect()
    }

    fn of(rule: &Value) -> Self {
        Self {
            subjects: list(rule, "/subjects").iter().filter_map(Subject::of).collect(),
            resources: list(rule, "/resourceRules").iter().map(Resources::of).collect(),
            paths: list(rule, "/nonResourceRules").iter().map(Paths::of).collect(),
        }
    }

    /// Returns whether the rule is for a request of a user.
    pub(super) fn matches(&self, user: &UserInfo, request: &Attributes) -> bool {
        if !self.subjects.iter().any(|subject| subject.matches(user)) {
            return false;
        }
        match request.path.is_empty() {
            true => self.resources.iter().any(|resources| resources.match_request(request)),
            false => self.paths.iter().any(|paths| paths.match_request(request)),
        }
    }
}

impl Subject {
    fn of(subject: &Value) -> Option<Self> {
        let named = |name: &str, one: fn(Box<str>) -> Self| if name == ALL { Self::Anybody } else { one(name.into()) };
        Some(match text(subject, "/kind") {
            "User" => named(text(subject, "/user/name"), Self::User),
            "Group" => named(text(subject, "/group/name"), Self::Group),
            "ServiceAccount" => {
                let begin = format!("system:serviceaccount:{}:", text(subject, "/serviceAccount/namespace"));
                match text(subject, "/serviceAccount/name") {
                    ALL => Self::ServiceAccounts(begin.into()),
                    name => Self::User(format!("{begin}{name}").into()),
                }
            }
            _ => return None,
        })
    }

    fn matches(&self, user: &UserInfo) -> bool {
        match self {
            Self::Anybody => true,
            Self::User(name) => *user.name == **name,
            Self::Group(name) => user.groups.iter().any(|group| **group == **name),
            Self::ServiceAccounts(begin) => user.name.starts_with(&**begin),
        }
    }
}

impl Names {
    fn of(rule: &Value, field: &str) -> Self {
        let names: Vec<Box<str>> = list(rule, field).iter().filter_map(Value::as_str).map(Into::into).collect();
        match names.as_slice() {
            [name] if **name == *ALL => Self::All,
            _ => Self::These(names),
        }
    }

    fn contain(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => names.iter().any(|known| **known == *name),
        }
    }

    /// Returns whether they contain a resource, or one of its subresources.
    fn contain_resource(&self, resource: &str, subresource: &str) -> bool {
        match self {
            Self::These(names) if !subresource.is_empty() => names.iter().any(|known| {
                let rest = known.strip_prefix(resource).and_then(|rest| rest.strip_prefix('/'));
                rest == Some(subresource)
            }),
            names => names.contain(resource),
        }
    }
}

impl Resources {
    fn of(rule: &Value) -> Self {
        Self {
            verbs: Names::of(rule, "/verbs"),
            groups: Names::of(rule, "/apiGroups"),
            resources: Names::of(rule, "/resources"),
            namespaces: Names::of(rule, "/namespaces"),
            cluster_scope: rule["clusterScope"] == true,
        }
    }

    fn match_request(&self, request: &Attributes) -> bool {
        let in_scope = match request.namespace.as_str() {
            "" => self.cluster_scope,
            namespace => self.namespaces.contain(namespace),
        };
        in_scope
            && self.verbs.contain(&request.verb)
            && self.groups.contain(&request.group)
            && self.resources.contain_resource(&request.resource, &request.subresource)
    }
}

impl Paths {
    fn of(rule: &Value) -> Self {
        let paths: Vec<_> = list(rule, "/nonResourceURLs").iter().filter_map(Value::as_str).collect();
        let with_begin = |path: &&str| {
            let begin = path.strip_suffix('*').unwrap_or(path);
            let slash = if begin.ends_with('/') { "" } else { "/" };
            ((*path).into(), format!("{begin}{slash}").into())
        };
        Self {
            verbs: Names::of(rule, "/verbs"),
            all: paths.contains(&ALL),
            paths: paths.iter().map(with_begin).collect(),
        }
    }

    fn match_request(&self, Attributes { verb, path, .. }: &Attributes) -> bool {
        let is_one = |(known, begin): &(Box<str>, Box<str>)| **known == **path || path.starts_with(&**begin);
        self.verbs.contain(verb) && (self.all || self.paths.iter().any(is_one))
    }
}
