//! What Rust keeps for itself.

/// Keywords of the 2024 edition, strict and reserved, of which a module can't have the name.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield", "Self",
];

/// Types and traits that generated code names without a path: a kind of that name would stand in their place.
const TYPES: &[&str] = &[
    // Of the standard library.
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
    // Of serde, schemars, kube and k8s-openapi.
    "Condition",
    "CustomResource",
    "Deserialize",
    "JsonSchema",
    "KubeSchema",
    "ObjectMeta",
    "ResourceExt",
    "Serialize",
    // Of the prelude.
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
    "Predicate",
    "Reconciler",
    "Request",
    "Retry",
    "Selector",
    "PolicyRule",
    "Subresource",
    "ValidationErrors",
    "Validator",
    "Verb",
    "Webhook",
];

/// Crates that a project depends on or can't stand beside.
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

/// A module's name for `text`, which is in lower case: other characters than letters and digits become `_`.
pub(super) fn module(text: &str) -> String {
    let mut name: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        name.insert(0, '_');
    }
    // The tests of a kind are beside a `main.rs`.
    if KEYWORDS.contains(&name.as_str()) || name == "main" {
        name.push('_');
    }
    name
}

/// Whether generated code needs this name for something else.
pub(super) fn is_type(name: &str) -> bool {
    TYPES.contains(&name)
}

/// Whether a package of this name would stand in the way of its own dependencies.
pub(super) fn is_crate(name: &str) -> bool {
    CRATES.contains(&name)
}
