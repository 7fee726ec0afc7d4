//! Names that generated Rust code cannot use.

/// The strict and reserved keywords of the 2024 edition, which cannot be module names.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield", "Self",
];

/// The types and traits that generated code uses without a path. A kind of the same name would shadow them.
const TYPES: &[&str] = &[
    // Standard library.
    "Box",
    "Clone",
    "Copy",
    "Debug",
    "Default",
    "Drop",
    "Err",
    "Eq",
    "From",
    "Into",
    "Iterator",
    "None",
    "Ok",
    "Option",
    "PartialEq",
    "Result",
    "Self",
    "Send",
    "Some",
    "String",
    "Sync",
    "Vec",
    // serde, schemars, kube and k8s-openapi.
    "Condition",
    "CustomResource",
    "Deserialize",
    "JsonSchema",
    "KubeSchema",
    "ObjectMeta",
    "ResourceExt",
    "Serialize",
    // The prelude of kubewright.
    "Action",
    "Change",
    "ClientError",
    "ConditionStatus",
    "Conditions",
    "Context",
    "Controller",
    "Defaulter",
    "Denied",
    "Event",
    "Manager",
    "Object",
    "ObjectKey",
    "PolicyRule",
    "Predicate",
    "Reconciler",
    "Request",
    "Retry",
    "Selector",
    "Subresource",
    "ValidationErrors",
    "Validator",
    "Verb",
    "Webhook",
];

/// The crates that a project depends on, or whose names conflict with it.
const CRATES: &[&str] = &[
    "alloc",
    "anyhow",
    "core",
    "jiff",
    "k8s-openapi",
    "kube",
    "kubewright",
    "kubewright-cluster",
    "proc-macro",
    "schemars",
    "serde",
    "serde-json",
    "std",
    "test",
    "thiserror",
    "tokio",
    "tracing",
    "k8s_openapi",
    "serde_json",
    "proc_macro",
];

/// Returns a module name for a lower-case text: characters other than letters and digits become `_`.
pub(super) fn module(text: &str) -> String {
    let mut name: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        name.insert(0, '_');
    }
    // The tests of kinds are in the same directory as a `main.rs`.
    if KEYWORDS.contains(&name.as_str()) || name == "main" {
        name.push('_');
    }
    name
}

/// Returns whether generated code uses a name for something else.
pub(super) fn is_type(name: &str) -> bool {
    TYPES.contains(&name)
}

/// Returns whether a package name conflicts with a dependency.
pub(super) fn is_crate(name: &str) -> bool {
    CRATES.contains(&name)
}
