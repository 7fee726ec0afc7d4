//! The paths of a resource and their operations, independent of the version of OpenAPI.

use crate::registry::Resource;

use super::{
    base_path,
    schemas::{SCALE, list_name, meta},
};

/// A path and its operations.
pub(super) struct Path {
    pub(super) path: String,
    pub(super) operations: Vec<Operation>,
}

impl Path {
    /// Returns the path parameters.
    pub(super) fn parameters(&self) -> impl Iterator<Item = &str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }
}

/// One operation.
pub(super) struct Operation {
    /// The HTTP method in lower case.
    pub(super) method: &'static str,
    /// Kubernetes' name of the action: `list`, `post`, …
    pub(super) action: &'static str,
    /// The operation ID, unique in the document.
    pub(super) id: String,
    /// The description.
    pub(super) description: String,
    /// Query parameters.
    pub(super) query: Vec<&'static Parameter>,
    /// The schema of the body, and its content types.
    pub(super) body: Option<(String, &'static [&'static str])>,
    /// The schema of the response.
    pub(super) answer: String,
    /// The group, version and kind of the object.
    pub(super) kind: (String, String, String),
}

/// A query parameter.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) description: &'static str,
}

const JSON: &[&str] = &["application/json", "application/yaml"];
const PATCHES: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];
/// The content types of patches. Custom kinds don't support strategic merge patch.
const BUILTIN_PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

macro_rules! parameters {
    ($($constant:ident = $name:literal $kind:literal $description:literal;)*) => {
        $(static $constant: Parameter = Parameter { name: $name, kind: $kind, description: $description };)*
    };
}

parameters! {
    PRETTY_PRINT = "pretty" "string" "If 'true', then the output is pretty printed.";
    DRY_RUN = "dryRun" "string" "With 'All' everything is checked and nothing is stored.";
    FIELD_MANAGER = "fieldManager" "string" "The name under which fields that are changed are owned.";
    FIELD_VALIDATION = "fieldValidation" "string"
        "What is to happen to unknown and duplicate fields: 'Ignore', 'Warn' or 'Strict'.";
    FORCE = "force" "boolean" "Whether an apply takes fields from other owners.";
    LIMIT = "limit" "integer" "The most objects to answer at once.";
    CONTINUE = "continue" "string" "Where to go on with a limited list.";
    LABELS = "labelSelector" "string" "Which labels objects must have.";
    FIELDS = "fieldSelector" "string" "Which values fields of objects must have.";
    VERSION = "resourceVersion" "string" "How old the answer may be.";
    VERSION_MATCH = "resourceVersionMatch" "string" "How resourceVersion is meant.";
    INITIAL_EVENTS = "sendInitialEvents" "boolean" "Whether a watch begins with all present objects.";
    TIMEOUT = "timeoutSeconds" "integer" "How long a watch lasts.";
    WATCH = "watch" "boolean" "Whether to send changes as they come.";
    BOOKMARKS = "allowWatchBookmarks" "boolean" "Whether a watch may send bookmarks.";
    GRACE = "gracePeriodSeconds" "integer" "The time that an object gets to end.";
    PROPAGATION = "propagationPolicy" "string" "What becomes of dependents: 'Orphan', 'Background' or 'Foreground'.";
    ORPHAN = "orphanDependents" "boolean" "Deprecated: use propagationPolicy.";
}

/// The query parameter of all operations, which belongs to their path.
pub(super) static PRETTY: &Parameter = &PRETTY_PRINT;

/// Returns all paths of a resource.
pub(super) fn paths(resource: &Resource) -> Vec<Path> {
    let base = format!("/{}", base_path(resource));
    let plural = &resource.plural;
    let builder = OperationBuilder { resource };
    let mut paths = Vec::new();
    let collection = if resource.namespaced {
        let everywhere = vec![builder.operation("list", "ForAllNamespaces")];
        paths.push(Path { path: format!("{base}/{plural}"), operations: builder.allowed(everywhere) });
        format!("{base}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{base}/{plural}")
    };
    let item = format!("{collection}/{{name}}");
    let on_all = ["list", "post", "deletecollection"].map(|action| builder.operation(action, ""));
    paths.push(Path { path: collection, operations: builder.allowed(on_all.into()) });
    let on_one = ["get", "put", "patch", "delete"].map(|action| builder.operation(action, ""));
    paths.push(Path { path: item.clone(), operations: builder.allowed(on_one.into()) });
    if resource.status {
        let operations = ["get", "put", "patch"].map(|action| builder.operation(action, "Status")).into();
        paths.push(Path { path: format!("{item}/status"), operations });
    }
    if resource.scale.is_some() {
        let operations = ["get", "put", "patch"].map(|action| builder.scale(action)).into();
        paths.push(Path { path: format!("{item}/scale"), operations });
    }
    paths
}

struct OperationBuilder<'a> {
    resource: &'a Resource,
}

impl OperationBuilder<'_> {
    fn operation(&self, action: &'static str, suffix: &str) -> Operation {
        let resource = self.resource;
        let own = resource.schema.name.clone();
        let patches = if resource.schema.custom { PATCHES } else { BUILTIN_PATCHES };
        let (body, answer) = match action {
            "post" | "put" => (Some((own.clone(), JSON)), own),
            "patch" => (Some((meta("Patch"), patches)), own),
            "delete" | "deletecollection" => (Some((meta("DeleteOptions"), JSON)), meta("Status")),
            "list" => (None, list_name(resource)),
            _ => (None, own),
        };
        let kind = (resource.group.to_string(), resource.version.to_string(), resource.kind.to_string());
        self.make(action, suffix, body, answer, kind)
    }

    fn scale(&self, action: &'static str) -> Operation {
        let body = match action {
            "put" => Some((SCALE.to_owned(), JSON)),
            "patch" => Some((meta("Patch"), PATCHES)),
            _ => None,
        };
        self.make(action, "Scale", body, SCALE.into(), ("autoscaling".into(), "v1".into(), "Scale".into()))
    }

    fn make(
        &self,
        action: &'static str,
        suffix: &str,
        body: Option<(String, &'static [&'static str])>,
        answer: String,
        kind: (String, String, String),
    ) -> Operation {
        let (method, verb) = match action {
            "list" => ("get", "list"),
            "post" => ("post", "create"),
            "put" => ("put", "replace"),
            "patch" => ("patch", "patch"),
            "delete" => ("delete", "delete"),
            "deletecollection" => ("delete", "deleteCollection"),
            _ => ("get", "read"),
        };
        let resource = self.resource;
        let scope = if resource.namespaced && suffix != "ForAllNamespaces" { "Namespaced" } else { "" };
        let group = group_name(&resource.group);
        let version = capitalized(&resource.version);
        let id = format!("{verb}{group}{version}{scope}{}{suffix}", resource.kind);
        let description = format!("{verb} {}{}", resource.kind, if suffix.is_empty() { "" } else { " " }) + suffix;
        Operation { method, action, id, description, query: query(action), body, answer, kind }
    }

    /// Returns the operations whose verbs the resource has.
    fn allowed(&self, mut operations: Vec<Operation>) -> Vec<Operation> {
        operations.retain(|operation| {
            let verb = match operation.action {
                "post" => "create",
                "put" => "update",
                action => action,
            };
            self.resource.verbs.contains(&verb)
        });
        operations
    }
}

fn query(action: &str) -> Vec<&'static Parameter> {
    let own: &[&Parameter] = match action {
        "post" | "put" => &[&DRY_RUN, &FIELD_MANAGER, &FIELD_VALIDATION],
        "patch" => &[&DRY_RUN, &FIELD_MANAGER, &FIELD_VALIDATION, &FORCE],
        "delete" => &[&DRY_RUN, &GRACE, &ORPHAN, &PROPAGATION],
        "list" => &[
            &BOOKMARKS,
            &CONTINUE,
            &FIELDS,
            &LABELS,
            &LIMIT,
            &VERSION,
            &VERSION_MATCH,
            &INITIAL_EVENTS,
            &TIMEOUT,
            &WATCH,
        ],
        "deletecollection" => &[&CONTINUE, &DRY_RUN, &FIELDS, &GRACE, &LABELS, &LIMIT, &ORPHAN, &PROPAGATION, &VERSION],
        _ => &[],
    };
    own.to_vec()
}

/// Returns the name of a group in operation IDs: `Apps`, `RbacAuthorization`, `ComExampleApp`.
fn group_name(group: &str) -> String {
    match group.strip_suffix(".k8s.io").unwrap_or(group) {
        "" => "Core".into(),
        own => own.split('.').map(capitalized).collect(),
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
