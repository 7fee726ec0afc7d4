//! The state that a failed expectation shows.

use kube::api::DynamicObject;

/// The number of objects that are shown.
const SHOWN: usize = 5;

/// Formats the first objects of a kind as JSON, without `managedFields`, which are longer than most objects.
pub(super) fn describe(kind: &str, mut objects: Vec<DynamicObject>) -> String {
    let count = objects.len();
    if count == 0 {
        return format!("no object of kind {kind}");
    }
    objects.truncate(SHOWN);
    let shown = objects.into_iter().map(|mut object| {
        object.metadata.managed_fields = None;
        serde_json::to_string_pretty(&object).unwrap_or_else(|_| format!("{object:?}"))
    });
    let shown = shown.collect::<Vec<_>>().join("\n");
    let plural = if count == 1 { "" } else { "s" };
    let more = if count > SHOWN { format!("\nand {} more", count - SHOWN) } else { String::new() };
    format!("{count} object{plural} of kind {kind}:\n{shown}{more}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;

    use crate::{Cluster, Pods};

    #[tokio::test]
    async fn a_failed_expectation_shows_some_objects_as_json() {
        let cluster = Cluster::builder().pods(Pods::None).start().await.unwrap();
        let map = |index| format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a{index}}}, data: {{b: c}}}}");
        let failed = async || {
            let never = |maps: &[&ConfigMap]| maps.len() > 100;
            cluster.expect_within(Duration::from_millis(1), never).await.unwrap_err()
        };
        cluster.apply_yaml(&map(0)).await.unwrap();
        let last = failed().await.last;
        let (head, object) = last.split_once('\n').unwrap();
        // The controllers of the cluster have their own.
        assert!(head.ends_with("of kind ConfigMap:"), "{last}");
        assert!(object.contains("\"name\": \"a0\"") && object.contains("\"b\": \"c\""), "{last}");
        assert!(!last.contains("managedFields"), "{last}");
        for index in 1..10 {
            cluster.apply_yaml(&map(index)).await.unwrap();
        }
        let error = failed().await;
        assert_eq!(error.last.matches("\n{").count(), super::SHOWN, "{error}");
        assert!(error.last.ends_with(" more") && format!("{error:?}") == error.to_string(), "{error}");
        cluster.shutdown().await;
    }

    #[test]
    fn a_kind_without_objects() {
        assert_eq!(super::describe("Pod", Vec::new()), "no object of kind Pod");
    }
}
