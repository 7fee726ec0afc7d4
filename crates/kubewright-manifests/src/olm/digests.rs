//! Digests of images in place of tags, as of `operator-sdk generate bundle --use-image-digests`. Clusters without
//! access to the Internet copy the images that a bundle lists, and find them by their digests.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{CSV, items, text};

/// The prefix of environment variables with images that an operator runs.
const VARIABLE: &str = "RELATED_IMAGE_";

/// Returns the images that rendered objects name by a tag: those of containers of Deployments, those in their
/// environment variables `RELATED_IMAGE_*`, and those in `spec.relatedImages` of the base of a ClusterServiceVersion.
pub fn tagged_images(objects: &[Value]) -> BTreeSet<String> {
    let mut objects = objects.to_vec();
    let mut all = BTreeSet::new();
    let mut add = |image: &mut Value| all.extend(image.as_str().filter(|image| !image.contains('@')).map(Into::into));
    visit(&mut objects, &mut |_, image| add(image));
    for base in objects.iter_mut().filter(|object| object["kind"] == CSV) {
        let related = base.pointer_mut("/spec/relatedImages").and_then(Value::as_array_mut).into_iter().flatten();
        related.filter_map(|entry| entry.get_mut("image")).for_each(&mut add);
    }
    all
}

/// Replaces the images of [`tagged_images`] by those with digests, and lists all of them in `spec.relatedImages` of the
/// base. Images without an entry in `digests` stay as they are. The name of an entry is that of its container, or that
/// of its variable without the prefix.
pub fn use_digests(objects: &mut [Value], digests: &BTreeMap<String, String>) {
    let replace = |image: &mut Value| {
        if let Some(digest) = image.as_str().and_then(|image| digests.get(image)) {
            *image = digest.as_str().into();
        }
    };
    let mut found = Vec::new();
    visit(objects, &mut |names, image| {
        replace(image);
        found.push((names, image.clone()));
    });
    for base in objects.iter_mut().filter(|object| object["kind"] == CSV) {
        let mut related = items(base, "/spec/relatedImages").to_vec();
        related.iter_mut().filter_map(|entry| entry.get_mut("image")).for_each(replace);
        for (names, image) in &found {
            add(&mut related, names, image);
        }
        base["spec"]["relatedImages"] = related.into();
    }
}

/// Adds an image to the list, under the first of its names that is free or has this image.
fn add(related: &mut Vec<Value>, names: &[String; 2], image: &Value) {
    let numbered = (2_usize..).map(|number| format!("{}-{number}", names[1]));
    for name in names.iter().cloned().chain(numbered) {
        match related.iter().find(|entry| entry["name"] == name.as_str()) {
            Some(entry) if entry["image"] == *image => return,
            Some(_) => {}
            None => {
                related.push(json!({"name": name, "image": image}));
                return;
            }
        }
    }
}

/// Calls a function with each image of the Deployments, and the names for it: a short one, and a longer one if that is
/// taken.
fn visit(objects: &mut [Value], act: &mut impl FnMut([String; 2], &mut Value)) {
    for deployment in objects.iter_mut().filter(|object| object["kind"] == "Deployment") {
        let deployment_name = text(deployment, "/metadata/name").to_owned();
        for list in ["initContainers", "containers"] {
            let pointer = format!("/spec/template/spec/{list}");
            for container in deployment.pointer_mut(&pointer).and_then(Value::as_array_mut).into_iter().flatten() {
                let name = text(container, "/name").to_owned();
                if let Some(image) = container.get_mut("image") {
                    act([name.clone(), format!("{deployment_name}-{name}")], image);
                }
                for variable in container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
                    let Some(related) = text(variable, "/name").strip_prefix(VARIABLE).map(short) else { continue };
                    if let Some(image) = variable.get_mut("value") {
                        act([related.clone(), format!("{name}-{related}")], image);
                    }
                }
            }
        }
    }
}

/// Returns the name of an image by that of its variable.
fn short(variable: &str) -> String {
    variable.to_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects() -> Vec<Value> {
        let manager = json!({"name": "manager", "image": "ghcr.io/me/cow:v1", "env": [
            {"name": "RELATED_IMAGE_MILK_BOTTLE", "value": "ghcr.io/me/milk:v1"},
            {"name": "RELATED_IMAGE_FIELD", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "OTHER", "value": "ghcr.io/me/other:v1"},
        ]});
        let proxy = json!({"name": "proxy", "image": "ghcr.io/me/proxy@sha256:4"});
        let other = json!({"name": "manager", "image": "ghcr.io/me/calf:v1"});
        let deployment = |name: &str, init: Value, containers: Value| {
            let spec = json!({"initContainers": init, "containers": containers});
            json!({"kind": "Deployment", "metadata": {"name": name}, "spec": {"template": {"spec": spec}}})
        };
        vec![
            deployment("cow", json!([proxy]), json!([manager])),
            deployment("calf", json!([]), json!([other])),
            json!({"kind": "Pod", "spec": {"containers": [{"name": "a", "image": "ghcr.io/me/pod:v1"}]}}),
            json!({"kind": CSV, "spec": {"relatedImages": [{"name": "mine", "image": "ghcr.io/me/mine:v1"}]}}),
        ]
    }

    #[test]
    fn images_of_deployments_have_digests_and_are_listed() {
        let mut objects = objects();
        let tagged = tagged_images(&objects);
        let expected = ["calf", "cow", "milk", "mine"].map(|name| format!("ghcr.io/me/{name}:v1"));
        assert_eq!(tagged.iter().cloned().collect::<Vec<_>>(), expected);
        let digests = tagged.into_iter().map(|image| (image.clone(), image.replace(":v1", "@sha256:0")));
        use_digests(&mut objects, &digests.collect());
        let pod = &objects[0]["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["image"], "ghcr.io/me/cow@sha256:0");
        assert_eq!(pod["containers"][0]["env"][0]["value"], "ghcr.io/me/milk@sha256:0");
        assert_eq!(pod["containers"][0]["env"][2]["value"], "ghcr.io/me/other:v1");
        assert_eq!(objects[2]["spec"]["containers"][0]["image"], "ghcr.io/me/pod:v1", "only what OLM runs");
        let related = json!([
            {"name": "mine", "image": "ghcr.io/me/mine@sha256:0"},
            {"name": "proxy", "image": "ghcr.io/me/proxy@sha256:4"},
            {"name": "manager", "image": "ghcr.io/me/cow@sha256:0"},
            {"name": "milk-bottle", "image": "ghcr.io/me/milk@sha256:0"},
            {"name": "calf-manager", "image": "ghcr.io/me/calf@sha256:0"},
        ]);
        assert_eq!(objects[3]["spec"]["relatedImages"], related);
        assert!(tagged_images(&objects).is_empty());
        let once = objects.clone();
        use_digests(&mut objects, &BTreeMap::new());
        assert_eq!(objects, once);
    }

    #[test]
    fn names_of_listed_images_are_unique() {
        let mut related = Vec::new();
        for image in ["a", "b", "c", "a", "c"] {
            add(&mut related, &["x".into(), "y-x".into()], &json!(image));
        }
        let names: Vec<_> = related.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["x", "y-x", "y-x-2"]);
    }
}
