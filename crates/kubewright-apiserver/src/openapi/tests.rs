use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::registry::{Settled, Strategy, builtin};

fn registry() -> Registry {
    let registry = builtin::registry(&kubewright_apimachinery::random::Random::seeded(1), &builtin::Indexes::default());
    let strategy = definitions(&registry);
    let mut definition = json!({
        "metadata": {"name": "ats.cnat.d2iq.com"},
        "spec": {
            "group": "cnat.d2iq.com", "scope": "Namespaced",
            "names": {"plural": "ats", "kind": "At"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                }},
                "selectableFields": [{"jsonPath": ".spec.schedule"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "kind": {"type": "string", "enum": ["At"]}, "metadata": {"type": "object", "description": "m"},
                    "spec": {"type": "object", "properties": {"schedule": {"type": "string", "description": "When."}}},
                }}},
            }],
        },
    });
    strategy.default(&mut definition);
    strategy.prepare_create(&mut definition);
    let Some(Settled::Update(definition)) = strategy.settled(&definition) else { panic!("no status") };
    strategy.committed(None, Some(&definition));
    registry
}

fn definitions(registry: &Registry) -> Arc<dyn Strategy> {
    registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions").unwrap().strategy.clone()
}

fn parsed(document: &Document) -> Value {
    serde_json::from_slice(&document.body).unwrap()
}

/// Checks that every reference of a document resolves.
fn check_references(document: &Value, prefix: &str, names: &BTreeSet<&String>) {
    match document {
        Value::Object(fields) => {
            if let Some(Value::String(target)) = fields.get("$ref")
                && !target.starts_with("#/parameters/")
            {
                let name = target.strip_prefix(prefix).unwrap();
                assert!(names.contains(&name.to_owned()), "{name}");
            }
            fields.values().for_each(|value| check_references(value, prefix, names));
        }
        Value::Array(items) => items.iter().for_each(|value| check_references(value, prefix, names)),
        _ => {}
    }
}

#[test]
fn the_index_has_every_document() {
    let (registry, api) = (registry(), OpenApi::default());
    let index = parsed(&api.v3_index(&registry, []));
    let paths = index["paths"].as_object().unwrap();
    for path in ["api/v1", "apis/apps/v1", "apis/cnat.d2iq.com/v1alpha1"] {
        let document = api.v3(&registry, path).unwrap();
        let address = format!("/openapi/v3/{path}?hash={}", document.hash);
        assert_eq!(paths[path]["serverRelativeURL"], address);
    }
    assert!(api.v3(&registry, "apis/none/v1").is_none());
}

#[test]
fn a_definition_does_not_change_the_fields_of_every_object() {
    let registry = registry();
    let document = parsed(&OpenApi::default().v3(&registry, "apis/cnat.d2iq.com/v1alpha1").unwrap());
    let fields = &document["components"]["schemas"]["com.d2iq.cnat.v1alpha1.At"]["properties"];
    for name in ["apiVersion", "kind"] {
        let names: Vec<_> = fields[name].as_object().unwrap().keys().collect();
        assert_eq!(names, ["description", "type"]);
    }
    let metadata = json!([{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]);
    assert_eq!(fields["metadata"]["allOf"], metadata);
    assert!(fields["metadata"]["description"].as_str().unwrap().starts_with("Standard object's metadata."));
}

#[test]
fn references_stay_within_a_document() {
    let (registry, api) = (registry(), OpenApi::default());
    for path in by_path(&registry).into_keys() {
        let document = parsed(&api.v3(&registry, &path).unwrap());
        let names = document["components"]["schemas"].as_object().into_iter().flat_map(Map::keys).collect();
        check_references(&document, "#/components/schemas/", &names);
    }
    let document = parsed(&api.v2_json(&registry));
    let names = document["definitions"].as_object().unwrap().keys().collect();
    check_references(&document["paths"], "#/definitions/", &names);
    check_references(&document["definitions"], "#/definitions/", &names);
    check_references(&document["parameters"], "#/definitions/", &names);
}

#[test]
fn patch_operations_have_what_kubectl_reads() {
    let (registry, api) = (registry(), OpenApi::default());
    let check = |path: &str, item: &str, kind: Value, strategic: bool| {
        let document = parsed(&api.v3(&registry, path).unwrap());
        let patch = &document["paths"][item]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"], kind);
        assert_eq!(patch["x-kubernetes-action"], "patch");
        let named = |name| patch["parameters"].as_array().unwrap().iter().any(|it| it["name"] == name);
        assert!(named("fieldValidation") && named("dryRun") && named("force"));
        let content = &patch["requestBody"]["content"];
        assert_eq!(content.get("application/strategic-merge-patch+json").is_some(), strategic);
        assert!(content.get("application/apply-patch+yaml").is_some());
    };
    let pod = json!({"group": "", "version": "v1", "kind": "Pod"});
    check("api/v1", "/api/v1/namespaces/{namespace}/pods/{name}", pod, true);
    let at = json!({"group": "cnat.d2iq.com", "version": "v1alpha1", "kind": "At"});
    let item = "/apis/cnat.d2iq.com/v1alpha1/namespaces/{namespace}/ats/{name}";
    check("apis/cnat.d2iq.com/v1alpha1", item, at, false);
}

#[test]
fn documents_have_the_schemas_that_explain_needs() {
    let (registry, api) = (registry(), OpenApi::default());
    let core = parsed(&api.v3(&registry, "api/v1").unwrap());
    let schemas = &core["components"]["schemas"];
    assert_eq!(
        schemas["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"],
        json!([{"group": "", "version": "v1", "kind": "Pod"}])
    );
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["items"]["allOf"], json!([{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}]));
    let strategy = &parsed(&api.v3(&registry, "apis/apps/v1").unwrap())["components"]["schemas"];
    let strategy = &strategy["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["strategy"];
    assert_eq!((&strategy["x-kubernetes-patch-strategy"], &strategy["default"]), (&json!("retainKeys"), &json!({})));
    let policy = &schemas["io.k8s.api.core.v1.Container"]["properties"]["imagePullPolicy"];
    assert_eq!(policy["enum"], json!(["Always", "IfNotPresent", "Never"]));
    assert!(schemas["io.k8s.api.core.v1.LocalObjectReference"].get("required").is_none());
    assert_eq!(schemas["io.k8s.api.core.v1.PodSpec"]["required"], json!(["containers"]));
    let command = &schemas["io.k8s.api.core.v1.Container"]["properties"]["command"];
    assert_eq!(command["x-kubernetes-list-type"], "atomic");
    let v2 = parsed(&api.v2_json(&registry));
    let selector = &v2["definitions"]["io.k8s.api.apps.v1.DeploymentSpec"];
    assert_eq!(selector["required"], json!(["selector", "template"]));
    assert_eq!(selector["properties"]["strategy"]["x-kubernetes-patch-strategy"], "retainKeys");
    let eviction = &schemas["io.k8s.api.policy.v1.Eviction"]["x-kubernetes-group-version-kind"];
    assert_eq!(eviction, &json!([{"group": "policy", "version": "v1", "kind": "Eviction"}]));
    assert_eq!(schemas["io.k8s.api.core.v1.PodList"]["required"], json!(["items"]));
    assert_eq!(schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["format"], "int-or-string");
    let custom = parsed(&api.v3(&registry, "apis/cnat.d2iq.com/v1alpha1").unwrap());
    let at = &custom["components"]["schemas"]["com.d2iq.cnat.v1alpha1.At"];
    assert_eq!(at["properties"]["spec"]["properties"]["schedule"]["description"], "When.");
}

#[test]
fn a_document_is_rebuilt_only_if_its_kinds_change() {
    let (registry, api) = (registry(), OpenApi::default());
    let (core, all) = (api.v3(&registry, "api/v1").unwrap(), api.v2_json(&registry));
    assert_eq!(api.v2_json(&registry).body.as_ptr(), all.body.as_ptr());
    let removed = json!({"spec": {"group": "cnat.d2iq.com", "names": {"plural": "ats"}}});
    definitions(&registry).committed(Some(&removed), None);
    assert_eq!(api.v3(&registry, "api/v1").unwrap().body.as_ptr(), core.body.as_ptr());
    assert_ne!(api.v2_json(&registry).hash, all.hash);
    assert!(api.v3(&registry, "apis/cnat.d2iq.com/v1alpha1").is_none());
}

#[test]
fn protobuf_responses_have_a_valid_media_type() {
    let (registry, api) = (registry(), OpenApi::default());
    let check = |accept: &str, expect: &str| {
        let (document, content_type) = api.v2(&registry, accept);
        assert_eq!(content_type, expect);
        assert_eq!(document.body.starts_with(b"{"), expect == "application/json");
    };
    let protobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    check("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", protobuf);
    check(protobuf, protobuf);
    check("application/json, */*", "application/json");
}

#[test]
fn paths_follow_scope_and_verbs() {
    let (registry, api) = (registry(), OpenApi::default());
    let paths = parsed(&api.v3(&registry, "api/v1").unwrap())["paths"].clone();
    assert!(paths.get("/api/v1/pods").is_some_and(|item| item.get("post").is_none()));
    assert!(paths.get("/api/v1/namespaces/{name}/status").is_some());
    assert!(paths["/api/v1/namespaces"].get("delete").is_none(), "namespaces are not deleted by collection");
    let identifiers: Vec<_> = paths
        .as_object()
        .unwrap()
        .values()
        .flat_map(|item| item.as_object().unwrap().values().filter_map(|it| it["operationId"].as_str()))
        .collect();
    assert_eq!(identifiers.iter().collect::<BTreeSet<_>>().len(), identifiers.len());
}

/// Returns the operation IDs of a document by path and method.
fn operation_ids(document: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let paths = document["paths"].as_object().unwrap();
    let ids = |item: &Value| {
        let operations = item.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters");
        operations.map(|(method, it)| format!("{method}:{}", it["operationId"].as_str().unwrap())).collect()
    };
    paths.iter().map(|(path, item)| (path.clone(), ids(item))).collect()
}

#[test]
fn paths_and_operation_ids_are_those_of_kubernetes() {
    let lines = include_str!("testdata/paths.txt").lines().filter(|line| !line.starts_with('#'));
    let expected: BTreeMap<_, _> = lines
        .map(|line| {
            let mut words = line.split(' ').map(str::to_owned);
            (words.next().unwrap(), words.collect::<BTreeSet<_>>())
        })
        .collect();
    let (registry, api) = (registry(), OpenApi::default());
    let is_builtin = |path: &str| !path.contains("cnat.d2iq.com");
    let mut v2 = operation_ids(&parsed(&api.v2_json(&registry)));
    v2.retain(|path, _| is_builtin(path));
    let mut v3: BTreeMap<_, _> = by_path(&registry)
        .into_keys()
        .filter(|path| is_builtin(path))
        .flat_map(|path| operation_ids(&parsed(&api.v3(&registry, &path).unwrap())))
        .collect();
    for (name, found) in [("v2", &mut v2), ("v3", &mut v3)] {
        let differences: Vec<_> = expected
            .keys()
            .chain(found.keys())
            .filter(|path| expected.get(*path) != found.get(*path))
            .map(|path| (path, expected.get(path), found.get(path)))
            .collect();
        assert!(differences.is_empty(), "{name}: {differences:#?}");
    }
}

#[test]
fn documents_of_custom_kinds_are_those_of_their_generator() {
    let (registry, api) = (registry(), OpenApi::default());
    let document = parsed(&api.v3(&registry, "apis/cnat.d2iq.com/v1alpha1").unwrap());
    assert_eq!(document["info"], json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}));
    assert!(document["components"].get("securitySchemes").is_none());
    let base = "/apis/cnat.d2iq.com/v1alpha1/namespaces/{namespace}/ats";
    let paths = operation_ids(&document);
    let of = |path: &str| paths[path].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(
        of(base),
        [
            "delete:deleteCnatD2iqComV1alpha1CollectionNamespacedAt",
            "get:listCnatD2iqComV1alpha1NamespacedAt",
            "post:createCnatD2iqComV1alpha1NamespacedAt"
        ]
    );
    assert_eq!(paths.len(), 5, "neither watches nor a list of resources: {paths:?}");
    let operation = |path: &str, method: &str| document["paths"][format!("{base}{path}")][method].clone();
    let codes = |operation: &Value| operation["responses"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(codes(&operation("", "post")), ["200", "201", "202", "401"]);
    assert_eq!(codes(&operation("/{name}", "patch")), ["200", "401"]);
    assert!(operation("", "delete").get("requestBody").is_none());
    assert_eq!(operation("/{name}/scale", "get")["x-kubernetes-group-version-kind"]["kind"], "At");
    let schemas = &document["components"]["schemas"];
    for name in ["At", "AtList"] {
        let fields = &schemas[format!("com.d2iq.cnat.v1alpha1.{name}")]["x-kubernetes-selectable-fields"];
        assert_eq!(*fields, json!([{"fieldPath": "spec.schedule"}]));
    }
}

#[test]
fn operations_have_parameters_bodies_and_responses() {
    let (registry, api) = (registry(), OpenApi::default());
    let (v2, v3) = (parsed(&api.v2_json(&registry)), parsed(&api.v3(&registry, "api/v1").unwrap()));
    let item = "/api/v1/namespaces/{namespace}/pods/{name}";
    let names = |parameters: &Value| -> Vec<String> {
        parameters.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let shared = &v2["paths"]["/api/v1/namespaces/{namespace}/pods"]["get"]["parameters"][0];
    let key = shared["$ref"].as_str().and_then(|name| name.strip_prefix("#/parameters/")).unwrap();
    assert!(key.starts_with("allowWatchBookmarks-") && v2["parameters"].get(key).is_some(), "{key}");
    assert_eq!(v2["parameters"]["body-78PwaGsr"]["required"], true);
    let log = &v3["paths"][format!("{item}/log")];
    assert_eq!(names(&log["parameters"])[..3], ["container", "follow", "insecureSkipTLSVerifyBackend"]);
    assert!(log["get"]["responses"]["200"]["content"].get("text/plain").is_some());
    assert_eq!(names(&v3["paths"][item]["parameters"]), ["name", "namespace", "pretty"]);
    assert_eq!(v3["paths"][item]["put"]["tags"], json!(["core_v1"]));
    assert!(v3["paths"][item]["put"]["requestBody"]["content"].get("*/*").is_some());
    let list = &v3["paths"]["/api/v1/pods"]["get"]["responses"]["200"]["content"];
    assert!(list.get("application/vnd.kubernetes.protobuf;stream=watch").is_some());
    let proxy = &v3["paths"][format!("{item}/proxy/{{path}}")];
    assert_eq!(names(&proxy["parameters"]), ["name", "namespace", "path", "path"]);
}

#[test]
fn documents_beside_the_resources_exist() {
    let (registry, api) = (registry(), OpenApi::default());
    for (path, exists) in [
        ("api", true),
        ("apis", true),
        ("apis/apps", true),
        ("version", true),
        ("openid/v1/jwks", true),
        (".well-known/openid-configuration", true),
        ("apis/cnat.d2iq.com/v1alpha1", true),
        ("apis/cnat.d2iq.com", false),
        ("apis/none", false),
        ("", false),
    ] {
        assert_eq!(api.v3(&registry, path).is_some(), exists, "{path}");
        assert_eq!(has_document(&registry, path), exists, "{path}");
    }
}
