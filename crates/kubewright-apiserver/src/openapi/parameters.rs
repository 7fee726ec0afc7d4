//! The query parameters of operations.

/// A query parameter.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) name: &'static str,
    /// The JSON type.
    pub(super) kind: &'static str,
    pub(super) description: &'static str,
}

macro_rules! parameters {
    ($($constant:ident = $name:literal $kind:literal $description:literal;)*) => {
        $(static $constant: Query = Query { name: $name, kind: $kind, description: $description };)*
    };
}

/// The parameters of `ListOptions`, without those of watches.
pub(super) const LIST: &[&Query] = &[
    &CONTINUE,
    &FIELD_SELECTOR,
    &LABEL_SELECTOR,
    &LIMIT,
    &RESOURCE_VERSION,
    &RESOURCE_VERSION_MATCH,
    &SEND_INITIAL_EVENTS,
    &SHARD_SELECTOR,
    &TIMEOUT_SECONDS,
];
/// The parameters of `ListOptions` that only watches have.
pub(super) const WATCHES: &[&Query] = &[&ALLOW_WATCH_BOOKMARKS, &WATCH];
/// The parameters of `GetOptions`.
pub(super) const READ: &[&Query] = &[&RESOURCE_VERSION];
/// The parameters of `CreateOptions` and `UpdateOptions`.
pub(super) const WRITE: &[&Query] = &[&DRY_RUN, &FIELD_MANAGER, &FIELD_VALIDATION];
/// The parameters of `PatchOptions`.
pub(super) const PATCH: &[&Query] = &[&DRY_RUN, &FIELD_MANAGER, &FIELD_VALIDATION, &FORCE];
/// The parameters of `DeleteOptions`.
pub(super) const DELETE: &[&Query] =
    &[&DRY_RUN, &GRACE_PERIOD_SECONDS, &IGNORE_READ_ERROR, &ORPHAN_DEPENDENTS, &PROPAGATION_POLICY];
/// The parameter of all operations but connections.
pub(super) const PRINT: &[&Query] = &[&PRETTY];

/// Returns the parameters of reads of a subresource, or of connections to it, given its name and the kind of its
/// options.
pub(super) fn of_subresource(name: &str, options: &str) -> &'static [&'static Query] {
    SUBRESOURCES.iter().find(|(known, _)| [name, options].contains(known)).map_or(&[], |(_, queries)| queries)
}

/// The options of connections by their kinds, and the subresource whose reads have options of their own.
const SUBRESOURCES: &[(&str, &[&Query])] = &[
    ("PodAttachOptions", &[&CONTAINER, &STDERR, &STDIN, &STDOUT, &TTY]),
    ("PodExecOptions", &[&COMMAND, &CONTAINER, &STDERR, &STDIN, &STDOUT, &TTY]),
    (
        "log",
        &[
            &CONTAINER,
            &FOLLOW,
            &INSECURE_BACKEND,
            &LIMIT_BYTES,
            &PREVIOUS,
            &SINCE_SECONDS,
            &STREAM,
            &TAIL_LINES,
            &TIMESTAMPS,
        ],
    ),
    ("PodPortForwardOptions", &[&PORTS]),
    ("PodProxyOptions", &[&PROXY_PATH]),
    ("ServiceProxyOptions", &[&PROXY_PATH]),
    ("NodeProxyOptions", &[&PROXY_PATH]),
];

parameters! {
    ALLOW_WATCH_BOOKMARKS = "allowWatchBookmarks" "boolean"
        "Whether a watch may have events of the type BOOKMARK, which contain a resource version only.";
    COMMAND = "command" "string" "The program and its arguments, one in each parameter of this name. No shell is used.";
    CONTAINER = "container" "string" "The name of the container. It may be omitted if the pod has only one.";
    CONTINUE = "continue" "string"
        "The token in `metadata.continue` of the previous page of a list with the same parameters. An expired token is \
         answered with 410 and a token that continues with the latest state.";
    DRY_RUN = "dryRun" "string" "`All`: the request is checked and answered, but nothing is stored.";
    FIELD_MANAGER = "fieldManager" "string"
        "The name of the manager that owns the changed fields: up to 128 printable characters. An apply requires it.";
    FIELD_SELECTOR = "fieldSelector" "string" "Selects objects by their fields.";
    FIELD_VALIDATION = "fieldValidation" "string"
        "What happens with unknown and duplicate fields: `Ignore` drops them, `Warn` (the default) drops them with a \
         warning for each, and `Strict` refuses the request.";
    FOLLOW = "follow" "boolean" "Whether the log is sent as it grows.";
    FORCE = "force" "boolean" "Whether an apply takes over fields that other managers own. Other patches can't have it.";
    GRACE_PERIOD_SECONDS = "gracePeriodSeconds" "integer"
        "The number of seconds before the object is deleted; 0 deletes it immediately. The default depends on the object.";
    IGNORE_READ_ERROR = "ignoreStoreReadErrorWithClusterBreakingPotential" "boolean"
        "Whether an object that can't be read from the storage is removed nevertheless, without its finalizers and \
         preconditions.";
    INSECURE_BACKEND = "insecureSkipTLSVerifyBackend" "boolean"
        "Whether the certificate of the kubelet isn't verified.";
    LABEL_SELECTOR = "labelSelector" "string" "Selects objects by their labels.";
    LIMIT = "limit" "integer"
        "The most items of the response. If there are more, `metadata.continue` of the list has the token of the next page, \
         which shows the same state.";
    LIMIT_BYTES = "limitBytes" "integer" "The most bytes of the log.";
    ORPHAN_DEPENDENTS = "orphanDependents" "boolean"
        "Whether dependents are kept. Deprecated: use `propagationPolicy` instead.";
    PORTS = "ports" "integer" "The ports to forward, which a WebSocket requires.";
    PRETTY = "pretty" "string"
        "Whether the response is indented. The default is `true` for curl, Wget and browsers, and `false` for others.";
    PREVIOUS = "previous" "boolean" "Whether the log is that of the previous run of the container.";
    PROPAGATION_POLICY = "propagationPolicy" "string"
        "What happens with dependents: `Orphan` keeps them, `Background` deletes them after the object, and `Foreground` \
         deletes them before it. The default depends on the object's finalizers and kind.";
    PROXY_PATH = "path" "string" "The path of the request, with its query.";
    RESOURCE_VERSION = "resourceVersion" "string"
        "The resource version of the response, or at which a watch begins \
         (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).";
    RESOURCE_VERSION_MATCH = "resourceVersionMatch" "string"
        "How the resource version of a list is to be understood, `Exact` or `NotOlderThan` \
         (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).";
    SEND_INITIAL_EVENTS = "sendInitialEvents" "boolean"
        "Whether a watch begins with the existing objects and a bookmark that has the annotation \
         `k8s.io/initial-events-end`. It requires `resourceVersionMatch=NotOlderThan`.";
    SHARD_SELECTOR = "shardSelector" "string"
        "Selects objects by ranges of hashes of their metadata, such as \
         `shardRange(object.metadata.uid, '0x0', '0x8000000000000000')`. An alpha feature.";
    SINCE_SECONDS = "sinceSeconds" "integer" "The age in seconds up to which lines of the log are sent.";
    STDERR = "stderr" "boolean" "Whether the standard error stream is connected.";
    STDIN = "stdin" "boolean" "Whether the standard input is connected.";
    STDOUT = "stdout" "boolean" "Whether the standard output is connected.";
    STREAM = "stream" "string" "The stream of the log: `All` (the default), `Stdout` or `Stderr`.";
    TAIL_LINES = "tailLines" "integer" "The number of lines at the end of the log that are sent.";
    TIMEOUT_SECONDS = "timeoutSeconds" "integer" "The number of seconds after which the request ends.";
    TIMESTAMPS = "timestamps" "boolean" "Whether each line of the log begins with its time.";
    TTY = "tty" "boolean" "Whether the streams are those of a terminal.";
    WATCH = "watch" "boolean" "Whether the response is a stream of changes.";
}
