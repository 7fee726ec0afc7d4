//! The audit log, with the events of Kubernetes 1.36.3 (`tests/data/audit-log.py` records them).

use std::{io, sync::Arc};

use kubewright_apiserver::{ApiServer, AuditLog, AuditPolicy};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    admission::{configure, entry},
    raw::{RawResponse, send},
    webhook::{Hook, Reply, allow, patch},
};

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/audit-log.json");
/// What is the same each time.
const FIELDS: [&str; 8] =
    ["stage", "requestURI", "verb", "impersonatedUser", "objectRef", "responseStatus", "requestObject", "annotations"];

/// A log that a test reads.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Returns the events since the last call.
    fn take(&self) -> Vec<Value> {
        let bytes = std::mem::take(&mut *self.0.lock());
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A server with an audit log whose policy has these rules.
fn start(policy: Value) -> (ApiServer, Lines) {
    let lines = Lines::default();
    let mut whole = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy"});
    for (field, value) in policy.as_object().unwrap() {
        whole[field] = value.clone();
    }
    let log = AuditLog::new(AuditPolicy::from_value(whole).unwrap(), lines.clone());
    (ApiServer::builder().audit_log(log).build(), lines)
}

/// Returns what is the same each time. That objects of responses are recorded is compared, but not their content.
fn shown(event: &Value) -> Value {
    let mut shown = json!({});
    for field in FIELDS.into_iter().filter(|field| event.get(field).is_some()) {
        shown[field] = event[field].clone();
    }
    if let Some(response) = event.get("responseObject") {
        shown["responseObject"] = response["kind"].clone();
    }
    for (pointer, field) in [
        ("/objectRef", "uid"),
        ("/objectRef", "resourceVersion"),
        ("/responseStatus/details", "uid"),
        ("/annotations", "authentication.kubernetes.io/issued-credential-id"),
    ] {
        if let Some(object) = shown.pointer_mut(pointer).and_then(Value::as_object_mut) {
            object.remove(field);
        }
    }
    shown
}

async fn request(api: &ApiServer, request: &Value) -> RawResponse {
    let text = |field: &str| request[field].as_str();
    let mut headers = vec![
        format!("Content-Type: {}", text("type").unwrap_or("application/json")),
        "User-Agent: recorder/1".to_owned(),
        "Accept: application/json".to_owned(),
    ];
    let more = request["headers"].as_object().into_iter().flatten();
    headers.extend(more.map(|(name, value)| format!("{name}: {}", value.as_str().unwrap())));
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let line = format!("{} {}", text("method").unwrap(), text("path").unwrap());
    send(api, &line, &headers, text("body").unwrap_or_default()).await
}

#[tokio::test]
async fn events_are_those_of_kubernetes() {
    let (api, lines) = start(json!({"rules": [{"level": "RequestResponse"}]}));
    let recorded: Vec<Value> = serde_json::from_slice(&std::fs::read(RECORDED).unwrap()).unwrap();
    let mut differences = Vec::new();
    for one in recorded {
        request(&api, &one["request"]).await;
        let events: Vec<Value> = lines.take().iter().map(shown).collect();
        let expect = one["events"].as_array().unwrap();
        if events != *expect {
            differences.push(format!("{}\n  {}\n  {}", one["request"], json!(expect), json!(events)));
        }
    }
    assert!(differences.is_empty(), "{} differ\n{}", differences.len(), differences.join("\n"));
}

#[tokio::test]
async fn an_event_says_who_asked_from_where_and_when() {
    let (api, lines) = start(json!({"rules": [{"level": "Metadata"}], "omitStages": ["RequestReceived"]}));
    let headers = ["Audit-ID: mine", "User-Agent: test/1", "X-Forwarded-For: 10.1.2.3, unknown"];
    send(&api, "GET /api/v1/namespaces/default/secrets", &headers, "").await.expect_code(200);
    let [event] = lines.take().try_into().unwrap();
    let text = |field: &str| event[field].as_str().unwrap();
    let fixed =
        [("auditID", "mine"), ("level", "Metadata"), ("userAgent", "test/1"), ("apiVersion", "audit.k8s.io/v1")];
    for (field, expect) in fixed {
        assert_eq!(text(field), expect);
    }
    assert_eq!(
        event["user"],
        json!({"username": "system:admin", "groups": ["system:masters", "system:authenticated"]})
    );
    assert_eq!(event["sourceIPs"], json!(["10.1.2.3", "127.0.0.1"]));
    assert!(
        text("requestReceivedTimestamp") <= text("stageTimestamp") && text("stageTimestamp").len() == 27,
        "{event}"
    );
    assert_eq!((event.get("requestObject"), event.get("responseObject")), (None, None));
}

#[tokio::test]
async fn errors_are_recorded_in_each_format() {
    let (api, lines) = start(json!({"rules": [{"level": "Metadata"}], "omitStages": ["RequestReceived"]}));
    for media_type in ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"] {
        let accept = format!("Accept: {media_type}");
        send(&api, "GET /api/v1/namespaces/default/configmaps/m", &[&accept], "").await.expect_code(404);
        let event = lines.take().remove(0);
        let status = &event["responseStatus"];
        let expect =
            (json!("configmaps \"m\" not found"), json!("NotFound"), json!({"name": "m", "kind": "configmaps"}));
        assert_eq!(
            (&status["message"], &status["reason"], &status["details"]),
            (&expect.0, &expect.1, &expect.2),
            "{event}"
        );
    }
}

#[tokio::test]
async fn objects_are_recorded_as_the_level_asks_for() {
    let rules = json!([
        {"level": "None", "verbs": ["get"]},
        {"level": "Request", "verbs": ["create"], "omitManagedFields": true},
        {"level": "RequestResponse", "omitManagedFields": true},
    ]);
    let (api, lines) = start(json!({"rules": rules, "omitStages": ["RequestReceived"]}));
    let map = |data: &str| json!({"metadata": {"name": "m"}, "data": {"a": data}}).to_string();
    send(&api, "POST /api/v1/namespaces/default/configmaps", &[], map("b")).await.expect_code(201);
    send(&api, "GET /api/v1/namespaces/default/configmaps/m", &[], "").await.expect_code(200);
    send(&api, "PUT /api/v1/namespaces/default/configmaps/m", &[], map("c")).await.expect_code(200);
    let protobuf = ["Accept: application/vnd.kubernetes.protobuf"];
    send(&api, "GET /api/v1/namespaces/default/configmaps", &protobuf, "").await.expect_code(200);
    let yaml = ["Content-Type: application/apply-patch+yaml"];
    let patch = "PATCH /api/v1/namespaces/default/configmaps/m?fieldManager=f";
    send(&api, patch, &yaml, "apiVersion: v1\nkind: ConfigMap\ndata: {q: r}\n").await.expect_code(200);
    let text = "x".repeat(100 << 10);
    let large = json!({"metadata": {"name": "n"}, "data": {"a": text}}).to_string();
    send(&api, "POST /api/v1/namespaces/default/configmaps", &[], large).await.expect_code(201);
    send(&api, "GET /api/v1/namespaces/default/configmaps", &[], "").await.expect_code(200);
    let [create, update, list, apply, _, large] = lines.take().try_into().unwrap();
    assert_eq!(large["responseObject"]["items"][1]["data"], json!({"a": text}));
    assert_eq!(create["requestObject"]["data"], json!({"a": "b"}));
    assert_eq!(create.get("responseObject"), None);
    assert_eq!(update["requestObject"]["data"], json!({"a": "c"}));
    assert_eq!(update["responseObject"]["data"], json!({"a": "c"}));
    assert!(update["responseObject"]["metadata"].get("managedFields").is_none(), "{update}");
    assert_eq!(list["responseObject"]["items"][0]["data"], json!({"a": "c"}));
    assert!(list["responseObject"]["items"][0]["metadata"].get("managedFields").is_none(), "{list}");
    assert_eq!(apply["requestObject"]["data"], json!({"q": "r"}), "YAML is recorded as JSON");
}

#[tokio::test]
async fn failed_authentication_is_one_event_without_a_user() {
    let (api, lines) = start(json!({"rules": [{"level": "Metadata"}]}));
    let request = http::Request::get("/api/v1/pods").header("Authorization", "Bearer bad");
    let answer = api.handle(request.body(http_body_util::Full::<bytes::Bytes>::default()).unwrap()).await;
    assert_eq!(answer.status(), 401);
    let [event] = lines.take().try_into().unwrap();
    assert_eq!(event["stage"], "ResponseStarted");
    assert_eq!(event["user"], json!({}));
    let status = json!({
        "metadata": {}, "code": 401, "status": "Failure", "message": "Unauthorized", "reason": "Unauthorized",
    });
    assert_eq!(event["responseStatus"], status);
}

/// The keys and values are those that Kubernetes documents
/// (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#mutating-webhook-auditing-annotations>).
#[tokio::test]
async fn calls_of_webhooks_are_annotated() {
    let hook = Hook::start(|path, _| match path {
        "/patch" => patch(&json!([{"op": "add", "path": "/data/a", "value": "<1>"}])),
        "/fail" => Reply::Raw(http::StatusCode::BAD_GATEWAY, Vec::new()),
        _ => allow(),
    })
    .await;
    let rules = |resource: &str| {
        let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]});
        json!({"rules": [rule], "failurePolicy": "Ignore"})
    };
    for (level, has_patch) in [("Metadata", false), ("Request", true)] {
        let rules_of_log = json!([
            {"level": "None", "resources": [{"group": "admissionregistration.k8s.io"}]},
            {"level": level},
        ]);
        let (api, lines) = start(json!({"rules": rules_of_log, "omitStages": ["RequestReceived"]}));
        let mutating = [
            entry("other", hook.client("/allow"), rules("pods")),
            entry("patch", hook.client("/patch"), rules("configmaps")),
            entry("allow", hook.client("/allow"), rules("configmaps")),
            entry("fail", hook.client("/fail"), rules("configmaps")),
        ];
        configure(&api, "Mutating", "m", &mutating).await;
        let validating = [
            entry("other", hook.client("/allow"), rules("pods")),
            entry("allow", hook.client("/allow"), rules("configmaps")),
            entry("fail", hook.client("/fail"), rules("configmaps")),
        ];
        configure(&api, "Validating", "v", &validating).await;
        let map = json!({"metadata": {"name": "m"}, "data": {"b": "2"}});
        send(&api, "POST /api/v1/namespaces/default/configmaps", &[], map.to_string()).await.expect_code(201);
        let events = lines.take();
        let name = |index: usize| mutating[index]["name"].as_str().unwrap();
        let called = |index: usize, is_changed: bool| {
            json!(format!(r#"{{"configuration":"m","webhook":"{}","mutated":{is_changed}}}"#, name(index)))
        };
        let mut expect = json!({
            "mutation.webhook.admission.k8s.io/round_0_index_1": called(1, true),
            "mutation.webhook.admission.k8s.io/round_0_index_2": called(2, false),
            "mutation.webhook.admission.k8s.io/round_0_index_3": called(3, false),
            "failed-open.mutation.webhook.admission.k8s.io/round_0_index_3": name(3),
            "failed-open.validating.webhook.admission.k8s.io/round_0_index_1": validating[2]["name"],
        });
        if has_patch {
            let operation = r#"{"op":"add","path":"/data/a","value":"\u003c1\u003e"}"#;
            expect["patch.webhook.admission.k8s.io/round_0_index_1"] = json!(format!(
                r#"{{"configuration":"m","webhook":"{}","patch":[{operation}],"patchType":"JSONPatch"}}"#,
                name(1)
            ));
        }
        let mut annotations = events.last().unwrap()["annotations"].clone();
        annotations.as_object_mut().unwrap().retain(|key, _| key.contains("webhook"));
        assert_eq!(annotations, expect);
    }
}

#[tokio::test]
async fn what_allows_an_impersonation_is_recorded() {
    let (api, lines) = start(json!({"rules": [{"level": "Metadata"}]}));
    for (headers, constraint) in [
        (vec![], None),
        (vec!["Impersonate-User: jane"], Some("impersonate:user-info")),
        (vec!["Impersonate-User: jane", "Impersonate-Group: system:masters"], None),
    ] {
        send(&api, "GET /version", &headers, "").await;
        let event = lines.take().pop().unwrap();
        let expect = constraint.map(|constraint| json!({"impersonationConstraint": constraint}));
        assert_eq!(event.get("authenticationMetadata"), expect.as_ref());
    }
}

#[tokio::test]
async fn issued_tokens_are_found_by_their_identifiers() {
    let (api, lines) = start(json!({"rules": [{"level": "Metadata"}], "omitStages": ["RequestReceived"]}));
    const ACCOUNTS: &str = "POST /api/v1/namespaces/default/serviceaccounts";
    send(&api, ACCOUNTS, &[], r#"{"metadata":{"name":"robot"}}"#).await.expect_code(201);
    let issued = send(&api, &format!("{ACCOUNTS}/robot/token"), &[], "{}").await.expect_code(201);
    let issue = lines.take().pop().unwrap();
    let id = issue["annotations"]["authentication.kubernetes.io/issued-credential-id"].as_str().unwrap();
    assert!(id.strip_prefix("JTI=").is_some_and(|id| id.len() == 36), "{id}");
    let bearer = format!("Bearer {}", issued.json()["status"]["token"].as_str().unwrap());
    let request = http::Request::get("/version").header("Authorization", bearer);
    api.handle(request.body(http_body_util::Full::<bytes::Bytes>::default()).unwrap()).await;
    let used = lines.take().pop().unwrap();
    assert_eq!(used["user"]["extra"]["authentication.kubernetes.io/credential-id"], json!([id]));
}
