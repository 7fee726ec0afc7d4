//! Classes that are the default for objects without one: of storage
//! (<https://kubernetes.io/docs/concepts/storage/storage-classes/#default-storageclass>) and of ingresses
//! (<https://kubernetes.io/docs/concepts/services-networking/ingress/#default-ingress-class>).

use std::{cmp::Reverse, collections::BTreeMap};

use parking_lot::RwLock;
use serde_json::Value;

use crate::fields::{flag, text};

/// The annotations of the default storage class.
pub(super) const OF_STORAGE: &[&str] =
    &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// The annotation of the default ingress class.
pub(super) const OF_INGRESSES: &[&str] = &["ingressclass.kubernetes.io/is-default-class"];

/// The classes of one kind, by name.
#[derive(Debug, Default)]
pub(crate) struct Classes(RwLock<BTreeMap<String, Class>>);

/// What is known of a class.
#[derive(Debug)]
struct Class {
    /// The time of its creation, in text form, which has the same order.
    created: String,
    is_default: bool,
    /// Whether volumes of a storage class can grow.
    expands: bool,
}

impl Classes {
    /// Returns the name of the default class: of several the newest, and of these the first by name.
    pub(in crate::registry::builtin) fn default_class(&self) -> Option<String> {
        let known = self.0.read();
        let defaults = known.iter().filter(|(_, class)| class.is_default);
        defaults.min_by_key(|(name, class)| (Reverse(&class.created), *name)).map(|(name, _)| name.clone())
    }

    /// Returns whether volumes of a class can grow.
    pub(in crate::registry::builtin) fn expands(&self, name: &str) -> bool {
        self.0.read().get(name).is_some_and(|class| class.expands)
    }

    /// Replaces a class. `annotations` are those of default classes.
    pub(in crate::registry::builtin) fn replace(
        &self,
        annotations: &[&str],
        before: Option<&Value>,
        after: Option<&Value>,
    ) {
        let Some(name) = after.or(before).map(|class| text(class, "/metadata/name").to_owned()) else { return };
        let Some(class) = after else { return drop(self.0.write().remove(&name)) };
        let present = &class["metadata"]["annotations"];
        let class = Class {
            created: text(class, "/metadata/creationTimestamp").to_owned(),
            is_default: annotations.iter().any(|annotation| present[*annotation] == "true"),
            expands: flag(class, "/allowVolumeExpansion"),
        };
        self.0.write().insert(name, class);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_default_class_prevails() {
        let classes = Classes::default();
        let class = |name: &str, created: &str, annotation: &str| json!({"metadata": {"name": name, "creationTimestamp": created, "annotations": {annotation: "true"}}});
        let mark = "storageclass.kubernetes.io/is-default-class";
        assert_eq!(classes.default_class(), None);
        let other = class("other", "2026-01-03T00:00:00Z", "x");
        let old = class("old", "2026-01-01T00:00:00Z", mark);
        let beta = class("beta", "2026-01-02T00:00:00Z", "storageclass.beta.kubernetes.io/is-default-class");
        let twin = class("a", "2026-01-02T00:00:00Z", mark);
        for (added, expect) in [(&other, None), (&old, Some("old")), (&beta, Some("beta")), (&twin, Some("a"))] {
            classes.replace(OF_STORAGE, None, Some(added));
            assert_eq!(classes.default_class().as_deref(), expect);
        }
        classes.replace(OF_STORAGE, Some(&twin), None);
        assert_eq!(classes.default_class().as_deref(), Some("beta"));
    }
}
