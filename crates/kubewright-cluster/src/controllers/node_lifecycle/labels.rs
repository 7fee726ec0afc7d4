//! The former names of the labels of nodes, which manifests still select by
//! (<https://kubernetes.io/docs/reference/labels-annotations-taints/#beta-kubernetes-io-arch>).

use serde_json::{Map, Value};

/// Labels of nodes, each with its former name.
const FORMER: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// Returns the labels by their former names that a node lacks, or has with another value.
pub(super) fn former_labels(node: &Value) -> Option<Map<String, Value>> {
    let labels = node["metadata"]["labels"].as_object()?;
    let former = FORMER.iter().filter_map(|(name, former)| {
        let value = labels.get(*name).filter(|value| labels.get(*former) != Some(value))?;
        Some(((*former).to_owned(), value.clone()))
    });
    Some(former.collect::<Map<_, _>>()).filter(|former| !former.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn former_labels_follow_the_current_ones() {
        let check = |labels: Value, expect: Option<Value>| {
            let former = former_labels(&json!({"metadata": {"labels": labels}}));
            assert_eq!(former.map(Value::Object), expect, "{labels}");
        };
        check(json!(null), None);
        check(json!({"beta.kubernetes.io/os": "linux"}), None);
        check(
            json!({"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64", "beta.kubernetes.io/arch": "amd64"}),
            Some(json!({"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "arm64"})),
        );
        check(json!({"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"}), None);
    }
}
