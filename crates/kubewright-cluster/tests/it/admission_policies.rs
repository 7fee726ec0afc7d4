//! The status of admission policies.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use kubewright_cluster::Cluster;
use serde_json::{Value, json};

#[tokio::test]
async fn a_policy_says_what_is_wrong_with_its_expressions() {
    let cluster = Cluster::builder().start().await.expect("a cluster");
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client());
    let policy = |resources: &[&str], expression: &str| {
        let rule =
            json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": resources});
        let spec = json!({
            "matchConstraints": {"resourceRules": [rule]},
            "variables": [{"name": "small", "expression": "object.spec.replicas < 5"}],
            "validations": [{"expression": expression, "messageExpression": "'not ' + object.metadata.name"}],
        });
        serde_json::from_value(json!({"metadata": {"name": "it"}, "spec": spec})).expect("a policy")
    };
    let checked = |generation: i64, warnings: Option<Value>| {
        move |found: &[&ValidatingAdmissionPolicy]| {
            found.iter().any(|policy| {
                let status = policy.status.as_ref();
                let checking = status.and_then(|status| status.type_checking.as_ref());
                let found = checking.map(|checking| json!(checking.expression_warnings));
                status.and_then(|status| status.observed_generation) == Some(generation)
                    && found == Some(warnings.clone().unwrap_or_default())
            })
        }
    };
    let wrong = policy(&["deployments", "statefulsets"], "object.replicas > 1 && variables.small");
    policies.create(&PostParams::default(), &wrong).await.expect("created");
    let why = |kind: &str| {
        format!(
            "apps/v1, Kind={kind}: ERROR: <input>:1:7: undefined field 'replicas'\n | object.replicas > 1 && variables.small\n | ......^\n"
        )
    };
    let warning = format!("{}\n{}", why("Deployment"), why("StatefulSet"));
    let warnings = json!([{"fieldRef": "spec.validations[0].expression", "warning": warning}]);
    cluster.expect(checked(1, Some(warnings))).await.expect("warnings");

    let right = json!({"spec": {"validations": [{"expression": "object.spec.replicas > 1 && variables.small"}]}});
    policies.patch("it", &PatchParams::default(), &Patch::Merge(&right)).await.expect("patched");
    cluster.expect(checked(2, None)).await.expect("no warnings");
    cluster.shutdown().await;
}
