//! The history of a pod template: one ControllerRevision for each revision of the template, as stateful sets and daemon
//! sets keep them. Pure.

use serde_json::{Map, Value, json};

use super::{
    hash::short_hash,
    kind::Kind,
    reconcile::Step,
    value::{controller_reference, int, number, text},
};

/// The kind `ControllerRevision`.
pub(crate) const CONTROLLER_REVISION: Kind =
    Kind { group: "apps", kind: "ControllerRevision", plural: "controllerrevisions" };

/// The revisions of an object's template.
pub(crate) struct History<'a> {
    /// The object.
    pub(crate) owner: &'a Value,
    /// The kind of the object.
    pub(crate) kind: Kind,
    /// The label of a revision with its hash.
    pub(crate) label: &'static str,
    /// The revisions that the object controls.
    pub(crate) revisions: Vec<&'a Value>,
    /// Returns whether a revision of this name exists, whoever controls it.
    pub(crate) taken: &'a dyn Fn(&str) -> bool,
}

/// The revision of the present template.
#[derive(Debug)]
pub(crate) struct Latest {
    /// Its name.
    pub(crate) name: String,
    /// Its hash.
    pub(crate) hash: String,
    /// The number of names that were already taken, for the status of the object.
    pub(crate) collisions: i64,
    /// The step that creates the revision, or makes an earlier one the latest.
    pub(crate) step: Option<Step>,
}

impl History<'_> {
    /// Returns the revision of the present template. If the template is that of an earlier revision, that one becomes
    /// the latest.
    pub(crate) fn latest(&self) -> Latest {
        let data = data(&self.owner["spec"]["template"]);
        let collisions = int(self.owner, "/status/collisionCount");
        let newest = self.revisions.iter().map(|one| int(one, "/revision")).max().unwrap_or_default();
        let equal = self.revisions.iter().filter(|one| one["data"] == data);
        let Some(equal) = equal.max_by_key(|one| (int(one, "/revision"), text(one, "/metadata/name"))) else {
            return self.create(data, newest + 1, collisions);
        };
        let renew = || Step::change(&CONTROLLER_REVISION, equal, json!({"revision": newest + 1}));
        Latest {
            name: text(equal, "/metadata/name").into(),
            hash: equal["metadata"]["labels"][self.label].as_str().unwrap_or_default().into(),
            collisions,
            step: (int(equal, "/revision") < newest).then(renew),
        }
    }

    fn create(&self, data: Value, revision: i64, mut collisions: i64) -> Latest {
        let owner = text(self.owner, "/metadata/name");
        let (name, hash) = loop {
            let hash = short_hash(&format!("{data}{collisions}"));
            let name = format!("{owner}-{hash}");
            if !(self.taken)(&name) {
                break (name, hash);
            }
            collisions += 1;
        };
        let mut labels = map(&self.owner["spec"]["template"]["metadata"]["labels"]);
        labels.insert(self.label.into(), hash.as_str().into());
        let body = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision",
            "metadata": {
                "name": name, "labels": labels, "annotations": map(&self.owner["metadata"]["annotations"]),
                "ownerReferences": [controller_reference(self.owner, &self.kind.api_version(), self.kind.kind)],
            },
            "data": data, "revision": revision,
        });
        let path = CONTROLLER_REVISION.address(text(self.owner, "/metadata/namespace"), "");
        Latest { name, hash, collisions, step: Some(Step::Create(path, body)) }
    }

    /// Returns the template of a revision; `None` if the object doesn't control a revision of this name.
    pub(crate) fn template(&self, name: &str) -> Option<Value> {
        let revision = self.revisions.iter().find(|one| text(one, "/metadata/name") == name)?;
        let mut template = revision["data"]["spec"]["template"].clone();
        template.as_object_mut()?.remove(PATCH);
        Some(template)
    }

    /// Returns the steps that delete the oldest revisions beyond `spec.revisionHistoryLimit`. Revisions in use don't
    /// count.
    pub(crate) fn truncate(&self, in_use: impl Fn(&Value) -> bool) -> Vec<Step> {
        let Some(limit) =
            number(self.owner, "/spec/revisionHistoryLimit").and_then(|limit| usize::try_from(limit).ok())
        else {
            return Vec::new();
        };
        let mut old: Vec<_> = self.revisions.iter().copied().filter(|one| !in_use(one)).collect();
        old.sort_by_key(|one| (int(one, "/revision"), text(one, "/metadata/name")));
        let surplus = old.len().saturating_sub(limit);
        old[..surplus].iter().map(|one| Step::delete(&CONTROLLER_REVISION, one)).collect()
    }
}

/// The directive of strategic merge patches that makes the template replace the present one.
const PATCH: &str = "$patch";

/// Returns the data of a revision: the strategic merge patch that restores the template, which `kubectl rollout undo`
/// sends.
fn data(template: &Value) -> Value {
    let mut template = map(template);
    template.insert(PATCH.into(), "replace".into());
    json!({"spec": {"template": template}})
}

fn map(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { group: "apps", kind: "StatefulSet", plural: "statefulsets" };

    fn owner(image: &str, limit: i64) -> Value {
        json!({
            "metadata": {"name": "db", "namespace": "default", "uid": "u"},
            "spec": {"revisionHistoryLimit": limit, "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"image": image}}},
        })
    }

    fn history<'a>(owner: &'a Value, revisions: &'a [Value], taken: &'a dyn Fn(&str) -> bool) -> History<'a> {
        History { owner, kind: KIND, label: "hash", revisions: revisions.iter().collect(), taken }
    }

    /// Returns the revision that is created for an image.
    fn revision(image: &str, revisions: &[Value], taken: &dyn Fn(&str) -> bool) -> (Value, i64) {
        let owner = owner(image, 10);
        let latest = history(&owner, revisions, taken).latest();
        let Some(Step::Create(_, body)) = latest.step else { panic!("{latest:?}") };
        assert_eq!(body["metadata"]["name"], latest.name.as_str());
        let hash = latest.name.strip_prefix("db-").expect("the hash");
        assert_eq!(body["metadata"]["labels"], json!({"app": "db", "hash": hash}));
        (body, latest.collisions)
    }

    #[test]
    fn each_template_has_a_revision() {
        let (first, _) = revision("a", &[], &|_| false);
        assert_eq!(first["revision"], 1);
        let (second, _) = revision("b", std::slice::from_ref(&first), &|_| false);
        assert_eq!(second["revision"], 2);
        let both = [first.clone(), second];
        let back = owner("a", 10);
        let latest = history(&back, &both, &|_| true).latest();
        assert_eq!(latest.name, first["metadata"]["name"]);
        let Some(Step::Merge(_, "", patch)) = latest.step else { panic!("{latest:?}") };
        assert_eq!(patch["revision"], 3);
        let same = owner("b", 10);
        assert_eq!(history(&same, &both, &|_| true).latest().step, None);
        assert_eq!(history(&same, &both, &|_| true).template(&latest.name), Some(back["spec"]["template"].clone()));
    }

    #[test]
    fn a_name_that_is_taken_is_avoided() {
        let (plain, none) = revision("a", &[], &|_| false);
        let taken = plain["metadata"]["name"].as_str().expect("a name").to_owned();
        let (other, collisions) = revision("a", &[], &|name| name == taken);
        assert_ne!(other["metadata"]["name"], plain["metadata"]["name"]);
        assert_eq!((none, collisions), (0, 1));
    }

    #[test]
    fn the_oldest_revisions_are_forgotten() {
        let revisions: Vec<_> = (1..=5)
            .map(|number| json!({"metadata": {"name": format!("r{number}"), "uid": "x"}, "revision": number}))
            .collect();
        let owner = owner("a", 2);
        let history = history(&owner, &revisions, &|_| false);
        let gone = |in_use: &str| {
            let steps = history.truncate(|one| one["metadata"]["name"] == in_use);
            let name = |step: &Step| match step {
                Step::Delete(path, ..) => path.name.clone(),
                other => panic!("{other:?}"),
            };
            steps.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(gone("r5"), ["r1", "r2"]);
        assert_eq!(gone("r1"), ["r2", "r3"]);
    }
}
