//! The paths of resources and of discovery with their operations, independent of the version of OpenAPI.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    base_path,
    parameters::{self, Query},
    schemas::{SCALE, list_name, meta},
};
use crate::{
    object_type::types,
    registry::{Resource, Subresource},
};

/// The operations at a path.
#[derive(Default)]
pub(super) struct Path {
    pub(super) operations: Vec<Operation>,
}

impl Path {
    /// Returns the parameters that all operations of the path have.
    pub(super) fn shared(&self) -> Vec<&Parameter> {
        let Some((first, others)) = self.operations.split_first() else { return Vec::new() };
        first.parameters.iter().filter(|it| others.iter().all(|other| other.parameters.contains(it))).collect()
    }
}

/// One operation.
pub(super) struct Operation {
    /// The HTTP method in lower case.
    pub(super) method: &'static str,
    /// Kubernetes' name of the action, `list`, `post`, …, and the kind of the object. Discovery has neither.
    pub(super) action: Option<(&'static str, GroupVersionKind)>,
    /// The operation ID, unique in the document.
    pub(super) id: String,
    /// The group and version in identifiers, by which operations are grouped.
    pub(super) tag: String,
    pub(super) description: String,
    /// The query and path parameters, by name.
    pub(super) parameters: Vec<Parameter>,
    /// The schema of the body, and whether a request must have one.
    pub(super) body: Option<(String, bool)>,
    /// The content types of requests.
    pub(super) consumes: &'static [&'static str],
    /// The content types of responses.
    pub(super) produces: Vec<&'static str>,
    /// The schema of responses. `None` if responses are plain text, or have no schema.
    pub(super) answer: Option<String>,
    /// The status codes of successful responses.
    pub(super) codes: &'static [u16],
}

impl Operation {
    /// Adds the action and the kind to the document of the operation.
    pub(super) fn mark(&self, document: &mut Value) {
        if let Some((action, (group, version, kind))) = &self.action {
            document["x-kubernetes-action"] = (*action).into();
            document["x-kubernetes-group-version-kind"] = json!({"group": group, "version": version, "kind": kind});
        }
    }
}

/// The group, version and kind of an object.
type GroupVersionKind = (String, String, String);

/// A query or path parameter.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) description: Cow<'static, str>,
    pub(super) in_path: bool,
}

impl From<&&'static Query> for Parameter {
    fn from(query: &&'static Query) -> Self {
        Self { name: query.name, kind: query.kind, description: query.description.into(), in_path: false }
    }
}

fn path_parameter(name: &'static str, description: impl Into<Cow<'static, str>>) -> Parameter {
    Parameter { name, kind: "string", description: description.into(), in_path: true }
}

const ANY: &[&str] = &["*/*"];
const JSON: &[&str] = &["application/json"];
const CUSTOM_TYPES: &[&str] = &["application/json", "application/yaml"];
const TYPES: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const STREAMS: &[&str] = &["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];
/// The content types of patches. Custom kinds don't support strategic merge patch.
const CUSTOM_PATCHES: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// An action on a resource.
struct Action {
    /// The name in documents.
    name: &'static str,
    /// The HTTP method.
    method: &'static str,
    /// The verb of the resource that allows it.
    verb: &'static str,
    /// The beginning of operation IDs, and what follows the group and version.
    prefix: (&'static str, &'static str),
    /// The beginning of descriptions, before the kind, and what precedes the kind.
    does: (&'static str, Article),
    /// The status codes of successful responses.
    codes: &'static [u16],
}

/// What precedes a kind in a description.
#[derive(Clone, Copy)]
enum Article {
    Specified,
    Indefinite,
    None,
}

macro_rules! actions {
    ($($constant:ident = $name:literal $method:literal $verb:literal $prefix:literal $rest:literal $does:literal $article:ident $codes:expr;)*) => {
        $(static $constant: Action = Action {
            name: $name, method: $method, verb: $verb, prefix: ($prefix, $rest), does: ($does, Article::$article), codes: &$codes,
        };)*
    };
}

actions! {
    LIST = "list" "get" "list" "list" "" "list or watch objects of kind" None [200];
    CREATE = "post" "post" "create" "create" "" "create" Indefinite [200, 201, 202];
    DELETE_ALL = "deletecollection" "delete" "deletecollection" "delete" "Collection" "delete collection of" None [200];
    READ = "get" "get" "get" "read" "" "read" Specified [200];
    REPLACE = "put" "put" "update" "replace" "" "replace" Specified [200, 201];
    PATCH = "patch" "patch" "patch" "patch" "" "partially update" Specified [200, 201];
    DELETE = "delete" "delete" "delete" "delete" "" "delete" Indefinite [200, 202];
    WATCH = "watch" "get" "watch" "watch" "" "watch changes to an object of kind" None [200];
    WATCH_ALL = "watchlist" "get" "watch" "watch" "" "watch individual changes to a list of" None [200];
}

/// The methods of a proxy.
const PROXY_METHODS: &[&str] = &["get", "put", "post", "delete", "options", "head", "patch"];
/// The methods of other connections.
const CONNECT_METHODS: &[&str] = &["get", "post"];

/// Returns the paths of all resources.
pub(super) fn paths(entries: &[Arc<Resource>]) -> BTreeMap<String, Path> {
    let mut paths = BTreeMap::new();
    for entry in entries {
        Builder { resource: entry, paths: &mut paths }.build();
    }
    paths
}

/// Builds the paths of a resource.
struct Builder<'a> {
    resource: &'a Resource,
    paths: &'a mut BTreeMap<String, Path>,
}

/// Where an action takes place.
#[derive(Clone, Copy, Default)]
struct Target<'a> {
    /// True for the objects of all namespaces.
    everywhere: bool,
    /// True for an object.
    named: bool,
    /// The subresource, with the kind of its bodies.
    subresource: Option<(&'a str, (&'a str, &'a str, &'a str))>,
    /// True for a path behind the subresource.
    with_path: bool,
}

impl Builder<'_> {
    fn build(&mut self) {
        let resource = self.resource;
        let watches = resource.verbs.contains(&"watch") && !resource.schema.custom;
        let all = Target::default();
        let one = Target { named: true, ..all };
        let everywhere = resource.namespaced.then_some(Target { everywhere: true, ..all });
        for target in everywhere.into_iter().chain([all]) {
            self.add_allowed(target, &[&LIST], &resource.verbs);
            self.add_allowed(target, &[&WATCH_ALL], if watches { &["watch"] } else { &[] });
        }
        self.add_allowed(all, &[&CREATE, &DELETE_ALL], &resource.verbs);
        self.add_allowed(one, &[&READ, &REPLACE, &PATCH, &DELETE], &resource.verbs);
        self.add_allowed(one, &[&WATCH], if watches { &["watch"] } else { &[] });
        const ON_PARTS: &[&str] = &["get", "update", "patch"];
        let own = (&*resource.group, &*resource.version, &*resource.kind);
        let on_part = |name, kind| Target { subresource: Some((name, kind)), ..one };
        if resource.status {
            self.add_allowed(on_part("status", own), &[&READ, &REPLACE, &PATCH], ON_PARTS);
        }
        if resource.scale.is_some() {
            let scale = ("autoscaling", "v1", "Scale");
            self.add_allowed(on_part("scale", scale), &[&READ, &REPLACE, &PATCH], ON_PARTS);
        }
        for subresource in &resource.subresources {
            let target = on_part(subresource.name, subresource.kind);
            match methods(subresource) {
                Some(methods) => self.connect(target, methods),
                None => self.add_allowed(target, &[&CREATE, &READ, &REPLACE, &PATCH], &subresource.verbs),
            }
        }
    }

    fn add_allowed(&mut self, target: Target<'_>, actions: &[&'static Action], verbs: &[&str]) {
        for action in actions.iter().filter(|action| verbs.contains(&action.verb)) {
            let path = self.path(target, action.verb == "watch");
            let operation = self.operation(target, action);
            self.paths.entry(path).or_default().operations.push(operation);
        }
    }

    fn connect(&mut self, target: Target<'_>, methods: &[&'static str]) {
        let proxies = methods == PROXY_METHODS;
        for target in [Some(target), proxies.then_some(Target { with_path: true, ..target })].into_iter().flatten() {
            let path = self.path(target, false);
            let operations = methods.iter().map(|method| self.connection(target, method));
            self.paths.entry(path).or_default().operations = operations.collect();
        }
    }

    fn path(&self, target: Target<'_>, watch: bool) -> String {
        let resource = self.resource;
        let watch = if watch { "/watch" } else { "" };
        let namespace = if resource.namespaced && !target.everywhere { "/namespaces/{namespace}" } else { "" };
        let mut path = format!("/{}{watch}{namespace}/{}", base_path(resource), resource.plural);
        if target.named {
            path += "/{name}";
        }
        if let Some((name, _)) = target.subresource {
            path = path + "/" + name;
        }
        if target.with_path {
            path += "/{path}";
        }
        path
    }

    fn operation(&self, target: Target<'_>, action: &'static Action) -> Operation {
        let resource = self.resource;
        let custom = resource.schema.custom;
        let object = match target.subresource {
            Some(("scale", _)) => Some(SCALE.to_owned()),
            Some(("log", _)) => None,
            Some((_, (group, version, kind))) if !custom => {
                types().kind(group, version, kind).and_then(|ty| types().get(ty).name())
            }
            _ => Some(resource.schema.name.clone()),
        };
        // A deletion of a namespace returns the namespace as well, which Kubernetes doesn't declare.
        let returns_object = resource.lifecycle.returns_deleted && !custom && &*resource.plural != "namespaces";
        let options = Some((meta("DeleteOptions"), false));
        let (body, answer) = match action.name {
            "post" | "put" => (object.clone().map(|object| (object, true)), object),
            "patch" => (Some((meta("Patch"), true)), object),
            "delete" => (options, if returns_object { object } else { Some(meta("Status")) }),
            "deletecollection" => (options.filter(|_| !custom), Some(meta("Status"))),
            "list" => (None, Some(list_name(resource))),
            "watch" | "watchlist" => (None, Some(meta("WatchEvent"))),
            _ => (None, object),
        };
        let streams = if matches!(action.name, "list" | "watch" | "watchlist") && !custom { STREAMS } else { &[] };
        let text: &[_] = if answer.is_none() { &["text/plain"] } else { &[] };
        let types = if custom { CUSTOM_TYPES } else { TYPES };
        let suffix = if action.name == "watchlist" { "List" } else { "" };
        Operation {
            method: action.method,
            action: Some((action.name, self.kind(target))),
            id: self.id(target, action.prefix, suffix),
            tag: tag(&resource.group, &resource.version),
            description: self.description(target, action),
            parameters: self.parameters(target, queries(action, custom, target)),
            body,
            consumes: match (action.name, custom) {
                ("patch", true) => CUSTOM_PATCHES,
                ("patch", false) => PATCHES,
                (_, true) => CUSTOM_TYPES,
                (_, false) => ANY,
            },
            produces: [text, types, streams].concat(),
            answer,
            // Kubernetes' generator for custom kinds doesn't know that an apply may create an object.
            codes: if custom && action.name == "patch" { &[200] } else { action.codes },
        }
    }

    fn connection(&self, target: Target<'_>, method: &'static str) -> Operation {
        let resource = self.resource;
        let name = target.subresource.map_or("", |(name, _)| name);
        let queries = of_subresource(target);
        Operation {
            method,
            action: Some(("connect", self.kind(target))),
            id: self.id(target, ("connect", &capitalized(method)), ""),
            tag: tag(&resource.group, &resource.version),
            description: format!("connect {} requests to {name} of {}", method.to_uppercase(), resource.kind),
            parameters: self.parameters(target, queries.to_vec()),
            body: None,
            consumes: ANY,
            produces: ANY.to_vec(),
            answer: None,
            codes: &[200],
        }
    }

    /// Returns the kind of the bodies. Kubernetes' generator for custom kinds knows only their own.
    fn kind(&self, target: Target<'_>) -> GroupVersionKind {
        let resource = self.resource;
        let own = (&*resource.group, &*resource.version, &*resource.kind);
        let of_part = target.subresource.map(|(_, kind)| kind).filter(|_| !resource.schema.custom);
        let (group, version, kind) = of_part.unwrap_or(own);
        (group.into(), version.into(), kind.into())
    }

    fn id(&self, target: Target<'_>, (prefix, rest): (&str, &str), suffix: &str) -> String {
        let resource = self.resource;
        let scope = if resource.namespaced && !target.everywhere { "Namespaced" } else { "" };
        let subresource = target.subresource.map_or(String::new(), |(name, _)| capitalized(name));
        let group = identifier(group_name(&resource.group), true);
        let version = identifier(&resource.version, true);
        let kind = &resource.kind;
        let everywhere = if target.everywhere { "ForAllNamespaces" } else { "" };
        let with_path = if target.with_path { "WithPath" } else { "" };
        format!("{prefix}{group}{version}{rest}{scope}{kind}{subresource}{suffix}{everywhere}{with_path}")
    }

    fn description(&self, target: Target<'_>, action: &Action) -> String {
        let kind = &self.resource.kind;
        let does = match action.name {
            "list" if self.resource.schema.custom || !self.resource.verbs.contains(&"watch") => "list objects of kind",
            _ => action.does.0,
        };
        let subresource = target.subresource.map_or(String::new(), |(name, _)| format!(" {name} of"));
        let article = match action.does.1 {
            Article::Specified => " the specified",
            Article::None => "",
            Article::Indefinite if kind.ends_with('s') && !kind.ends_with("ss") => "",
            Article::Indefinite if kind.starts_with(['A', 'E', 'I', 'O', 'U']) => " an",
            Article::Indefinite => " a",
        };
        let deprecated = match action.name {
            "watch" => ". Deprecated: use a list with the parameters `watch` and `fieldSelector`.",
            "watchlist" => ". Deprecated: use a list with the parameter `watch`.",
            _ => "",
        };
        format!("{does}{subresource}{article} {kind}{deprecated}")
    }

    fn parameters(&self, target: Target<'_>, queries: Vec<&'static Query>) -> Vec<Parameter> {
        let mut all: Vec<Parameter> = queries.iter().map(Parameter::from).collect();
        if self.resource.namespaced && !target.everywhere {
            all.push(path_parameter("namespace", "namespace of the object"));
        }
        if target.named {
            let (_, _, kind) = self.kind(target);
            all.push(path_parameter("name", format!("name of the {kind}")));
        }
        if target.with_path {
            all.push(path_parameter("path", "path of the request"));
        }
        all.sort_by_key(|it| (it.name, !it.in_path));
        all
    }
}

/// Returns the methods of a subresource that is a connection.
fn methods(subresource: &Subresource) -> Option<&'static [&'static str]> {
    if subresource.kind.2.ends_with("ProxyOptions") {
        return Some(PROXY_METHODS);
    }
    subresource.connection.is_some().then_some(CONNECT_METHODS)
}

fn of_subresource(target: Target<'_>) -> &'static [&'static Query] {
    target.subresource.map_or(&[], |(name, (_, _, options))| parameters::of_subresource(name, options))
}

fn queries(action: &Action, custom: bool, target: Target<'_>) -> Vec<&'static Query> {
    let own: &[&[&Query]] = match action.name {
        "post" | "put" => &[parameters::WRITE],
        "patch" => &[parameters::PATCH],
        "delete" => &[parameters::DELETE],
        "deletecollection" if custom => &[parameters::LIST, parameters::WATCHES],
        "deletecollection" => &[parameters::DELETE, parameters::LIST],
        "list" | "watch" | "watchlist" => &[parameters::LIST, parameters::WATCHES],
        _ if custom => &[parameters::READ],
        _ => &[of_subresource(target)],
    };
    own.iter().chain([&parameters::PRINT]).flat_map(|list| list.iter().copied()).collect()
}

/// Returns the operation that reads the document at a path beside the resources, such as `apis/apps`.
pub(super) fn information(path: &str) -> Option<Operation> {
    let segments: Vec<_> = path.split('/').collect();
    let in_group = |group: &str, version: &str, noun: &str| {
        format!("get{}{}{noun}", identifier(group_name(group), true), identifier(version, true))
    };
    const VERSIONS: &str = "get the versions of the API";
    let (id, tag, description, answer) = match *segments.as_slice() {
        ["api"] => ("getCoreAPIVersions".into(), "core".into(), VERSIONS, "APIVersions"),
        ["apis"] => ("getAPIVersions".into(), "apis".into(), VERSIONS, "APIGroupList"),
        ["apis", group] => {
            let tag = identifier(group_name(group), false);
            (in_group(group, "", "APIGroup"), tag, "get the versions of the group", "APIGroup")
        }
        ["api", version] => resource_list("", version, in_group("", version, "APIResources")),
        ["apis", group, version] => resource_list(group, version, in_group(group, version, "APIResources")),
        _ => return other(path),
    };
    Some(Operation { consumes: TYPES, produces: TYPES.to_vec(), ..get(id, tag, description, Some(meta(answer))) })
}

fn resource_list(group: &str, version: &str, id: String) -> (String, String, &'static str, &'static str) {
    (id, tag(group, version), "get the resources of the version", "APIResourceList")
}

/// The schema of `/version`.
pub(super) const VERSION_INFO: &str = "io.k8s.apimachinery.pkg.version.Info";

/// The documents beside discovery.
pub(super) const OTHERS: &[&str] = &[".well-known/openid-configuration", "openid/v1/jwks", "version"];

fn other(path: &str) -> Option<Operation> {
    Some(match path {
        ".well-known/openid-configuration" => Operation {
            produces: JSON.to_vec(),
            ..get(
                "getServiceAccountIssuerOpenIDConfiguration".into(),
                "WellKnown".into(),
                "get the OpenID configuration of the issuer of service account tokens",
                None,
            )
        },
        "openid/v1/jwks" => Operation {
            produces: vec!["application/jwk-set+json"],
            ..get(
                "getServiceAccountIssuerOpenIDKeyset".into(),
                "openid".into(),
                "get the public keys that verify service account tokens",
                None,
            )
        },
        "version" => Operation {
            consumes: JSON,
            produces: JSON.to_vec(),
            ..get("getCodeVersion".into(), "version".into(), "get the version of the server", Some(VERSION_INFO.into()))
        },
        _ => return None,
    })
}

/// Returns an operation without parameters that reads a document.
fn get(id: String, tag: String, description: &str, answer: Option<String>) -> Operation {
    Operation {
        method: "get",
        action: None,
        id,
        tag,
        description: description.into(),
        parameters: Vec::new(),
        body: None,
        consumes: &[],
        produces: Vec::new(),
        answer,
        codes: &[200],
    }
}

/// Returns the tag of a group and version: `apps_v1`.
fn tag(group: &str, version: &str) -> String {
    format!("{}_{version}", identifier(group_name(group), false))
}

/// Returns the name of a group from which identifiers are made.
fn group_name(group: &str) -> &str {
    match group.strip_suffix(".k8s.io").unwrap_or(group) {
        "" => "core",
        own => own,
    }
}

/// Returns the letters and digits of a name, each part capitalized: `RbacAuthorization`. `first` says whether the first
/// part is capitalized.
fn identifier(name: &str, first: bool) -> String {
    let parts = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    parts.enumerate().map(|(at, part)| if at > 0 || first { capitalized(part) } else { part.to_owned() }).collect()
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
