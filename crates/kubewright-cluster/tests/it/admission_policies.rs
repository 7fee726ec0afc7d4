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
                // An apply that leaves nothing of it removes it.
                let found = checking.map(|checking| json!(checking.expression_warnings));
                status.and_then(|status| status.observed_generation) == Some(generation) && found == warnings
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

    let parameters = json!({"spec": {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "params.data.x == 1"}, {"expression": "params.absent == 1"}],
    }});
    policies.patch("it", &PatchParams::default(), &Patch::Merge(&parameters)).await.expect("patched");
    let warning = |index: usize, expression: &str, at: usize, why: &str| {
        let place = format!("{}^", ".".repeat(at - 1));
        let warning = format!("apps/v1, Kind=Deployment: ERROR: <input>:1:{at}: {why}\n | {expression}\n | {place}\n");
        let other = warning.replace("Deployment", "StatefulSet");
        json!({"fieldRef": format!("spec.validations[{index}].expression"), "warning": format!("{warning}\n{other}")})
    };
    let warnings = json!([
        warning(0, "params.data.x == 1", 15, "found no matching overload for '_==_' applied to '(string, int)'"),
        warning(1, "params.absent == 1", 7, "undefined field 'absent'"),
    ]);
    cluster.expect(checked(3, Some(warnings))).await.expect("warnings about parameters");
    cluster.shutdown().await;
}
