//! Built-in objects pass through their Go types: canonical values, the fields that Go always writes, declared order.

use serde_json::{Value, json};

use crate::{
    raw::{get, send},
    start,
};

const MERGE: &str = "Content-Type: application/merge-patch+json";
const STRATEGIC: &str = "Content-Type: application/strategic-merge-patch+json";
const CORE: &str = "/api/v1/namespaces/default";
const APPS: &str = "/apis/apps/v1/namespaces/default";

fn pod(name: &str, container: Value) -> Value {
    let mut container = container;
    container["name"] = "c".into();
    container["image"] = "i:1".into();
    json!({"metadata": {"name": name}, "spec": {"containers": [container]}})
}

fn deployment() -> Value {
    json!({
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}], "hostAliases": []},
            },
        },
    })
}

#[tokio::test]
async fn clients_of_other_languages_write_back_what_they_read() {
    let (api, _) = start();
    let path = format!("{APPS}/deployments");
    let created = send(&api, &format!("POST {path}"), &[], deployment().to_string()).await.expect_code(201).json();
    let time = created["metadata"]["creationTimestamp"].as_str().unwrap().trim_end_matches('Z').to_owned();
    // As the clients in Python, JavaScript and Java write times.
    for suffix in ["+00:00", ".000Z", ".000000Z"] {
        let mut object = created.clone();
        object["metadata"]["creationTimestamp"] = format!("{time}{suffix}").into();
        for entry in object["metadata"]["managedFields"].as_array_mut().unwrap() {
            entry["time"] = format!("{}{suffix}", entry["time"].as_str().unwrap().trim_end_matches('Z')).into();
        }
        // They also send what they take for absent.
        object["spec"]["template"]["spec"]["nodeSelector"] = Value::Null;
        object["spec"]["template"]["spec"]["tolerations"] = json!([]);
        object["spec"]["template"]["spec"]["containers"][0]["stdin"] = json!(false);
        let put = send(&api, &format!("PUT {path}/d"), &[], object.to_string()).await.expect_code(200).json();
        assert_eq!(put, created, "nothing changes");
    }
}

#[tokio::test]
async fn objects_look_as_go_writes_them() {
    let (api, _) = start();
    let created = send(&api, &format!("POST {APPS}/deployments?fieldManager=m"), &[], deployment().to_string()).await;
    let text = created.expect_code(201).text;
    let start = r#"{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"d","namespace":"default","uid":""#;
    assert!(text.starts_with(start), "{text}");
    let spec = concat!(
        r#""spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"#,
        r#""spec":{"containers":[{"name":"c","image":"i","resources":{},"#,
        r#""terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","#,
        r#""imagePullPolicy":"Always"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"#,
        r#""dnsPolicy":"ClusterFirst","securityContext":{},"schedulerName":"default-scheduler"}},"#,
        r#""strategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"25%","maxSurge":"25%"}},"#,
        r#""revisionHistoryLimit":10,"progressDeadlineSeconds":600},"status":{}}"#,
        "\n"
    );
    assert!(text.ends_with(spec), "{text}");
    assert_eq!(get(&api, &format!("{APPS}/deployments/d"), "application/json").await.text, text);
    let list = get(&api, &format!("{APPS}/deployments"), "application/json").await.text;
    let start = r#"{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{"resourceVersion":""#;
    assert!(list.starts_with(start) && list.contains(r#""items":[{"metadata":{"name":"d","#), "{list}");
    assert!(list.ends_with(&spec.replace('\n', "]}\n")), "{list}");
    let yaml = get(&api, &format!("{APPS}/deployments"), "application/yaml").await.text;
    assert_eq!(yaml.matches("kind:").count(), 1, "{yaml}");
}

#[tokio::test]
async fn only_set_fields_have_an_owner() {
    let (api, _) = start();
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "source": {}});
    let created = send(&api, &format!("POST {CORE}/events?fieldManager=m"), &[], event.to_string()).await;
    let created = created.expect_code(201).json();
    let expect = [
        ("source", json!({})),
        ("firstTimestamp", json!(null)),
        ("eventTime", json!(null)),
        ("reportingComponent", json!("")),
    ];
    for (field, value) in expect {
        assert_eq!(created.get(field), Some(&value), "{field}");
    }
    assert_eq!(created["metadata"]["managedFields"][0]["fieldsV1"], json!({"f:involvedObject": {}}));
}

#[tokio::test]
async fn values_are_stored_in_canonical_form() {
    let (api, _) = start();
    let limits =
        json!({"cpu": "1000m", "memory": "1024Mi", "ephemeral-storage": 2_147_483_648_u64, "example.com/a": 2.0});
    let container = json!({
        "command": [], "env": [{"name": "A", "value": ""}], "resources": {"limits": limits.clone(), "requests": {"cpu": "0.5"}},
    });
    let created = send(&api, &format!("POST {CORE}/pods"), &[], pod("p", container).to_string()).await;
    let created = created.expect_code(201).json();
    let container = &created["spec"]["containers"][0];
    let expect = json!({"cpu": "1", "memory": "1Gi", "ephemeral-storage": "2147483648", "example.com/a": "2"});
    assert_eq!(container["resources"]["limits"], expect);
    assert_eq!(container["resources"]["requests"]["cpu"], "500m");
    assert_eq!((container.get("command"), &container["env"]), (None, &json!([{"name": "A"}])));

    let path = format!("POST {CORE}/configmaps");
    let map = json!({"metadata": {"name": "m"}, "data": {"a": null}, "binaryData": {"b": "YW\nJj\n"}});
    let created = send(&api, &path, &[], map.to_string()).await.expect_code(201).json();
    assert_eq!((&created["data"], &created["binaryData"]), (&json!({"a": ""}), &json!({"b": "YWJj"})));

    let service =
        json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "targetPort": 0}], "externalIPs": []}});
    let created = send(&api, &format!("POST {CORE}/services"), &[], service.to_string()).await.expect_code(201).json();
    assert_eq!(created["spec"]["ports"][0]["targetPort"], 80);
    assert_eq!((&created["status"], created["spec"].get("externalIPs")), (&json!({"loadBalancer": {}}), None));

    let lease = json!({"metadata": {"name": "l"}, "spec": {"renewTime": "2026-01-31T23:59:59.500000+02:00"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let created = send(&api, &format!("POST {leases}"), &[], lease.to_string()).await.expect_code(201).json();
    assert_eq!(created["spec"]["renewTime"], "2026-01-31T21:59:59.500000Z");
}

#[tokio::test]
async fn zero_values_are_defaulted() {
    let (api, _) = start();
    let binding = json!({
        "metadata": {"name": "b"}, "roleRef": {"apiGroup": "", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "u", "apiGroup": ""}],
    });
    let path = "POST /apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let created = send(&api, path, &[], binding.to_string()).await.expect_code(201).json();
    assert_eq!(created["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(created["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
}

#[tokio::test]
async fn patches_keep_the_markers_of_references() {
    let (api, _) = start();
    send(&api, &format!("POST {APPS}/deployments"), &[], deployment().to_string()).await.expect_code(201);
    // What `kubectl apply` sends for `strategy: {type: Recreate}`, since OpenAPI declares `retainKeys`.
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    let patched = send(&api, &format!("PATCH {APPS}/deployments/d"), &[STRATEGIC], patch.to_string()).await;
    assert_eq!(patched.expect_code(200).json()["spec"]["strategy"], json!({"type": "Recreate"}));

    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget =
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    send(&api, &format!("POST {budgets}"), &[], budget.to_string()).await.expect_code(201);
    let patch = json!({"spec": {"selector": {"matchLabels": {"c": "d"}}}});
    let patched = send(&api, &format!("PATCH {budgets}/b"), &[STRATEGIC], patch.to_string()).await;
    assert_eq!(patched.expect_code(200).json()["spec"]["selector"], json!({"matchLabels": {"c": "d"}}));
}

#[tokio::test]
async fn values_that_go_cannot_read_are_refused_with_its_words() {
    let (api, _) = start();
    let check = async |path: &str, body: Value, why: &str| {
        let answer = send(&api, &format!("POST {CORE}/{path}"), &[], body.to_string()).await.expect_code(400).json();
        let message = answer["message"].as_str().unwrap();
        assert!(message.ends_with(why), "{message}");
    };
    check(
        "pods",
        pod("p", json!({"ports": [{"containerPort": "x"}]})),
        "json: cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
    )
    .await;
    check(
        "services",
        json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1, "targetPort": true}]}}),
        "json: cannot unmarshal bool into Go struct field ServicePort.spec.ports.targetPort of type int32",
    )
    .await;
    check(
        "secrets",
        json!({"metadata": {"name": "s"}, "data": {"a": "a b"}}),
        "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 1",
    )
    .await;
    let event = |time: &str| json!({"metadata": {"name": "e"}, "involvedObject": {}, "firstTimestamp": time});
    check(
        "events",
        event("bad"),
        "parsing time \"bad\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"bad\" as \"2006\"",
    )
    .await;
    for time in ["9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00+01:00"] {
        check("events", event(time), "year outside of range [0,9999] in UTC").await;
    }
    let unknown = json!({"metadata": {"name": "m", "odd": 1}, "data": {"a": "b"}, "odd": 1}).to_string();
    let body = unknown.replacen("\"a\":\"b\"", "\"a\":\"b\",\"a\":\"c\"", 1);
    let answer = send(&api, &format!("POST {CORE}/configmaps?fieldValidation=Strict"), &[], body).await;
    let expect = concat!(
        r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: "#,
        r#"duplicate field "data.a", unknown field "metadata.odd", unknown field "odd""#
    );
    assert_eq!(answer.expect_code(400).json()["message"], expect);
}

#[tokio::test]
async fn large_values_take_bounded_work() {
    let (api, _) = start();
    let ones = "1".repeat(10_000);
    let limits = |cpu: &str| json!({"resources": {"limits": {"cpu": cpu}}});
    let created = send(&api, &format!("POST {CORE}/pods"), &[], pod("p", limits(&ones)).to_string()).await;
    let cpu = &created.expect_code(201).json()["spec"]["containers"][0]["resources"]["limits"]["cpu"];
    assert_eq!(cpu, &json!(ones));
    let body = pod("q", limits("1e2147483647")).to_string();
    send(&api, &format!("POST {CORE}/pods"), &[], body).await.expect_code(201);

    // Two megabytes, with a newline after every 76 digits.
    let line = format!("{}\n", "QUJD".repeat(19));
    let text = line.repeat((2 << 20) / line.len());
    let secret = json!({"metadata": {"name": "s"}, "data": {"a": text}});
    let answer = send(&api, &format!("POST {CORE}/secrets"), &[], secret.to_string()).await.expect_code(422);
    assert!(answer.text.contains("Too long: may not be more than 1048576 bytes"), "{}", answer.text);
    assert_eq!(get(&api, &format!("{CORE}/secrets/s"), "application/json").await.code, 404);
}

#[tokio::test]
async fn a_null_is_possible_everywhere() {
    fn places(value: &Value, at: &str, all: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                fields.iter().for_each(|(name, child)| places(child, &format!("{at}/{name}"), all));
            }
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, child)| places(child, &format!("{at}/{index}"), all));
            }
            _ => {}
        }
        all.push(at.to_owned());
    }
    let (api, _) = start();
    let container = json!({
        "command": ["x"], "ports": [{"containerPort": 1, "name": "n"}], "resources": {"limits": {"cpu": "1"}},
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "readinessProbe": {"httpGet": {"port": "n"}}, "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    });
    let mut sample = pod("p", container);
    sample["metadata"]["labels"] = json!({"a": "b"});
    sample["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    sample["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    let mut all = Vec::new();
    places(&sample, "", &mut all);
    for place in all {
        for odd in [json!(null), json!([]), json!({}), json!("x"), json!(1)] {
            let mut body = sample.clone();
            *body.pointer_mut(&place).unwrap() = odd;
            let answer = send(&api, &format!("POST {CORE}/pods?dryRun=All"), &[], body.to_string()).await;
            assert!(matches!(answer.code, 201 | 400 | 422), "{place}: {}", answer.text);
        }
    }
    assert_eq!(get(&api, &format!("{CORE}/pods"), "application/json").await.json()["items"], json!([]));
}

#[tokio::test]
async fn a_status_that_nobody_set_stays_as_it_is() {
    let (api, _) = start();
    send(&api, &format!("POST {APPS}/deployments"), &[], deployment().to_string()).await.expect_code(201);
    let path = format!("PATCH {APPS}/deployments/d");
    let label = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let patched = send(&api, &path, &[MERGE], label.clone()).await.expect_code(200).json();
    assert_eq!((&patched["status"], &patched["metadata"]["generation"]), (&json!({}), &json!(1)));
    let again = send(&api, &path, &[MERGE], label).await.expect_code(200).json();
    assert_eq!(again, patched, "nothing is written");
    let status = json!({"status": {"replicas": 0, "conditions": [{"type": "A", "status": "True"}]}}).to_string();
    let patched = send(&api, &format!("{path}/status"), &[MERGE], status).await.expect_code(200).json();
    let condition = json!({"type": "A", "status": "True", "lastUpdateTime": null, "lastTransitionTime": null});
    assert_eq!(patched["status"], json!({"conditions": [condition]}));
}

#[tokio::test]
async fn an_empty_list_is_a_change_for_kinds_that_compare_it_with_an_absent_one() {
    const MERGE: &str = "Content-Type: application/merge-patch+json";
    let (api, _) = start();
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let webhook = |more: Value| {
        let mut webhook = json!({
            "name": "a.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        });
        webhook.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        json!({"webhooks": [webhook]})
    };
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    for (path, mut object, patches) in [
        (
            policies,
            json!({"spec": {"podSelector": {}}}),
            vec![
                (json!({"spec": {"ingress": []}}), 2),
                (json!({"spec": {"ingress": []}}), 3),
                (json!({"spec": {"ingress": null}, "metadata": {"labels": {}}}), 3),
                (json!({"spec": {"podSelector": {"matchLabels": {}}}}), 4),
            ],
        ),
        (
            webhooks,
            webhook(json!({})),
            vec![
                (webhook(json!({"matchConditions": []})), 2),
                (webhook(json!({"namespaceSelector": {}})), 2),
                (json!({"webhooks": []}), 3),
                (json!({"webhooks": []}), 4),
            ],
        ),
        (ingresses, json!({"spec": {"defaultBackend": backend}}), vec![(json!({"spec": {"tls": []}}), 1)]),
    ] {
        object["metadata"] = json!({"name": "a"});
        send(&api, &format!("POST {path}"), &[], object.to_string()).await.expect_code(201);
        for (patch, generation) in patches {
            let line = format!("PATCH {path}/a");
            let patched = send(&api, &line, &[MERGE], patch.to_string()).await.expect_code(200).json();
            assert_eq!(patched["metadata"]["generation"], generation, "{patch}");
        }
    }
}
