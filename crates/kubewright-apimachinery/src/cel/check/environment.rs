//! The variables that expressions may use.

use std::sync::{Arc, LazyLock};

use super::types::{Fields, Type};
use crate::cel::message::{JSON_PATCH, OBJECT};

/// The declared variables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    pub(in crate::cel) variables: Vec<(&'static str, Type)>,
    /// True if expressions may construct messages, and use functions for patches.
    pub(in crate::cel) messages: bool,
    /// True if `cel.bind` may declare variables.
    pub(in crate::cel) binds: bool,
}

impl Environment {
    /// Returns the environment with one more variable.
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, of: Type) -> Self {
        self.variables.push((name, of));
        self
    }

    pub(in crate::cel) fn has_messages(&self) -> bool {
        self.messages
    }

    pub(in crate::cel) fn variable(&self, name: &str) -> Option<Type> {
        self.variables.iter().rev().find(|(known, _)| *known == name).map(|(_, of)| of.clone())
    }
}

/// The type that an expression must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Any type.
    Any,
    /// A boolean: validations and match conditions.
    Bool,
    /// A string: expressions of messages.
    String,
    /// A string or null: values of audit annotations.
    StringOrNull,
    /// An `Object`: apply configurations of mutating policies.
    Object,
    /// A list of `JSONPatch`: JSON patches of mutating policies.
    Patches,
}

impl Expected {
    /// Checks the type of an expression. As in Kubernetes, a type that is known only at evaluation isn't enough.
    pub(in crate::cel) fn accept(self, found: &Type) -> Result<(), String> {
        let wanted = match (self, found) {
            (Self::Any, _) | (_, Type::Unknown) => return Ok(()),
            (Self::Bool, Type::Bool) | (Self::String | Self::StringOrNull, Type::String) => return Ok(()),
            (Self::StringOrNull, Type::Null) => return Ok(()),
            (Self::Object, Type::Message(name)) if **name == *OBJECT => return Ok(()),
            (Self::Patches, Type::List(items)) if matches!(**items, Type::Unknown) => return Ok(()),
            (Self::Patches, Type::List(items)) if matches!(&**items, Type::Object(of) if of.name == JSON_PATCH) => {
                return Ok(());
            }
            (Self::Object, _) => OBJECT,
            (Self::Patches, _) => "list(JSONPatch)",
            (Self::Bool, _) => "bool",
            (Self::String, _) => "string",
            (Self::StringOrNull, _) => "one of [string null_type]",
        };
        let found = match found {
            Type::Null | Type::Timestamp | Type::Duration => found.name(),
            other => other.to_string(),
        };
        Err(format!("must evaluate to {wanted} but got {found}"))
    }
}

fn object(name: &'static str, fields: &[(&str, Type)]) -> Type {
    let fields = fields.iter().map(|(name, of)| ((*name).to_owned(), of.clone())).collect();
    Type::Object(Arc::new(Fields { name, fields }))
}

/// The type of `namespaceObject`.
pub(in crate::cel) static NAMESPACE: LazyLock<Type> = LazyLock::new(|| {
    let text = Type::String;
    let condition = object(
        "kubernetes.NamespaceCondition",
        &[
            ("status", text.clone()),
            ("type", text.clone()),
            ("lastTransitionTime", Type::Timestamp),
            ("message", text.clone()),
            ("reason", text.clone()),
        ],
    );
    let texts = Type::map(text.clone(), text.clone());
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", text.clone()),
            ("generateName", text.clone()),
            ("namespace", text.clone()),
            ("labels", texts.clone()),
            ("annotations", texts),
            ("UID", text.clone()),
            ("creationTimestamp", Type::Timestamp),
            ("deletionGracePeriodSeconds", Type::Int),
            ("deletionTimestamp", Type::Timestamp),
            ("generation", Type::Int),
            ("resourceVersion", text.clone()),
            ("finalizers", Type::list(text.clone())),
        ],
    );
    let spec = object("kubernetes.NamespaceSpec", &[("finalizers", Type::list(text.clone()))]);
    let status = object("kubernetes.NamespaceStatus", &[("conditions", Type::list(condition)), ("phase", text)]);
    object("kubernetes.Namespace", &[("metadata", metadata), ("spec", spec), ("status", status)])
});

/// The type of `user`, and of the user of a request.
pub(in crate::cel) static USER: LazyLock<Type> = LazyLock::new(|| {
    let texts = Type::list(Type::String);
    object(
        "kubernetes.UserInfo",
        &[
            ("username", Type::String),
            ("uid", Type::String),
            ("groups", texts.clone()),
            ("extra", Type::map(Type::String, texts)),
        ],
    )
});

/// The type of `request`.
pub(in crate::cel) static REQUEST: LazyLock<Type> = LazyLock::new(|| {
    let text = Type::String;
    let triple = |name: &'static str, last: &str| {
        object(name, &[("group", text.clone()), ("version", text.clone()), (last, text.clone())])
    };
    let kind = triple("kubernetes.GroupVersionKind", "kind");
    let resource = triple("kubernetes.GroupVersionResource", "resource");
    object(
        "kubernetes.AdmissionRequest",
        &[
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text.clone()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text.clone()),
            ("name", text.clone()),
            ("namespace", text.clone()),
            ("operation", text.clone()),
            ("userInfo", USER.clone()),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    )
});

/// The type of `request` in the match conditions of an authorizer: the `spec` of a SubjectAccessReview.
pub(in crate::cel) static ACCESS_REVIEW: LazyLock<Type> = LazyLock::new(|| {
    let text = Type::String;
    let texts = Type::list(text.clone());
    let requirement = object(
        "kubernetes.SelectorRequirement",
        &[("key", text.clone()), ("operator", text.clone()), ("values", texts.clone())],
    );
    let selector = |name: &'static str| {
        object(name, &[("rawSelector", text.clone()), ("requirements", Type::list(requirement.clone()))])
    };
    let resource = object(
        "kubernetes.ResourceAttributes",
        &[
            ("namespace", text.clone()),
            ("verb", text.clone()),
            ("group", text.clone()),
            ("version", text.clone()),
            ("resource", text.clone()),
            ("subresource", text.clone()),
            ("name", text.clone()),
            ("fieldSelector", selector("kubernetes.FieldSelectorAttributes")),
            ("labelSelector", selector("kubernetes.LabelSelectorAttributes")),
        ],
    );
    let path = object("kubernetes.NonResourceAttributes", &[("path", text.clone()), ("verb", text.clone())]);
    object(
        "kubernetes.SubjectAccessReviewSpec",
        &[
            ("resourceAttributes", resource),
            ("nonResourceAttributes", path),
            ("user", text.clone()),
            ("groups", texts.clone()),
            ("extra", Type::map(text.clone(), texts)),
            ("uid", text.clone()),
        ],
    )
});
