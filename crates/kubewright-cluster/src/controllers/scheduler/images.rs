//! Which nodes have the images of a pod. The rules are those of kube-scheduler's plugin `ImageLocality`. Pure.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::Value;

use crate::controllers::value::{int, list, text};

const MB: i64 = 1024 * 1024;
/// The size of images that makes no difference.
const LEAST: i64 = 23 * MB;
/// The size of an image from which on a larger one makes none.
const GREATEST: i64 = 1000 * MB;
/// The score of a node with all images.
const BEST: i64 = 100;

/// Returns a score for each of the nodes that would do: the larger the images of a pod are that it has, and the more
/// of `all` nodes have them, too.
pub(super) fn scores<'a>(pod: &Value, nodes: &[(&str, &Value)], all: impl Iterator<Item = &'a Value>) -> Vec<i64> {
    let containers = [list(pod, "/spec/initContainers"), list(pod, "/spec/containers")].concat();
    let volumes = list(pod, "/spec/volumes").iter().map(|volume| text(volume, "/image/reference"));
    let images = containers.iter().map(|container| text(container, "/image")).chain(volumes);
    let images: Vec<_> = images.filter(|image| !image.is_empty()).map(with_tag).collect();
    let mut known: BTreeMap<&str, Known> = images.iter().map(|image| (&**image, Known::default())).collect();
    let mut total = 0_i64;
    for node in all {
        total += 1;
        for (image, size) in images_of(node) {
            if let Some(known) = known.get_mut(image) {
                known.size.get_or_insert(size);
                known.nodes += 1;
            }
        }
    }
    let greatest = GREATEST.saturating_mul(i64::try_from(containers.len()).unwrap_or(i64::MAX)).max(LEAST + 1);
    let score = |(_, node): &(&str, &Value)| {
        let here: BTreeMap<_, _> = images_of(node).collect();
        let scaled = images.iter().filter(|image| here.contains_key(&***image)).filter_map(|image| {
            let Known { size, nodes } = known.get(&**image)?;
            Some(((*size)? as f64 * (*nodes as f64 / total as f64)) as i64)
        });
        let sum = scaled.fold(0_i64, i64::saturating_add).clamp(LEAST, greatest);
        BEST * (sum - LEAST) / (greatest - LEAST)
    };
    nodes.iter().map(score).collect()
}

/// An image of the pod.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    size: Option<i64>,
    /// The number of nodes that have it.
    nodes: i64,
}

/// Returns the names of the images of a node, with their sizes.
fn images_of(node: &Value) -> impl Iterator<Item = (&str, i64)> {
    let images = list(node, "/status/images").iter();
    images.flat_map(|image| {
        let size = int(image, "/sizeBytes");
        list(image, "/names").iter().filter_map(move |name| Some((name.as_str()?, size)))
    })
}

/// Returns the name of an image with its tag.
fn with_tag(image: &str) -> Cow<'_, str> {
    if image.rfind(':') > image.rfind('/') { image.into() } else { format!("{image}:latest").into() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks the scores of two nodes of four for a pod with these images. The first node has `a` and `b`, the other
    /// one `a`.
    #[track_caller]
    fn check(images: &[&str], expect: [i64; 2]) {
        let image =
            |name: &str, size: i64| json!({"names": [name, format!("{name}@sha256:0")], "sizeBytes": size * MB});
        let node = |images: Value| json!({"status": {"images": images}});
        let both = node(json!([image("a:latest", 1023), image("reg.io:5000/b:latest", 4000)]));
        let one = node(json!([image("a:latest", 1023)]));
        let none = node(json!([]));
        let containers: Vec<_> = images.iter().map(|image| json!({"image": image})).collect();
        let pod = json!({"spec": {"containers": containers}});
        let all = [&both, &one, &none, &none];
        assert_eq!(scores(&pod, &[("x", &both), ("y", &one)], all.into_iter()), expect, "{images:?}");
    }

    #[test]
    fn nodes_with_large_images_that_others_have_too_are_better() {
        check(&["c"], [0, 0]);
        // Half of 1023 MB, less 23 MB, of 977 MB.
        check(&["a"], [50, 50]);
        check(&["a:latest", "c"], [24, 24]);
        check(&["reg.io:5000/b"], [100, 0]);
        check(&["reg.io:5000/b", "a", "c"], [50, 16]);
        check(&[], [0, 0]);
    }

    #[test]
    fn images_of_init_containers_and_volumes_count() {
        let node = json!({"status": {"images": [{"names": ["a:1"], "sizeBytes": 523 * MB}]}});
        let nodes = [("x", &node)];
        let scored = |spec: Value| scores(&json!({"spec": spec}), &nodes, [&node].into_iter());
        assert_eq!(scored(json!({"containers": [{"image": "a:1"}]})), [51]);
        assert_eq!(scored(json!({"initContainers": [{"image": "a:1"}], "containers": [{"image": "b"}]})), [25]);
        let volumes = json!([{"name": "v", "image": {"reference": "a:1"}}]);
        assert_eq!(scored(json!({"containers": [{"image": "b"}], "volumes": volumes})), [51]);
    }
}
