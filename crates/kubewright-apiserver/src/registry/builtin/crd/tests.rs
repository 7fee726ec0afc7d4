use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::*;
use crate::registry::Resource;

fn definition() -> Value {
    json!({
        "metadata": {"name": "ats.cnat.d2iq.com", "creationTimestamp": "2024-01-01T00:00:00Z"},
        "spec": {
            "group": "cnat.d2iq.com", "scope": "Namespaced", "names": {"plural": "ats", "kind": "At"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "schedule": {"type": "string"}, "replicas": {"type": "integer"},
                    }},
                    "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
                }}},
                "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Schedule", "type": "string", "jsonPath": ".spec.schedule"}],
                "selectableFields": [{"jsonPath": ".status.phase"}],
            }],
        },
    })
}

/// A strategy with the CRDs written to it.
#[derive(Default)]
struct Server {
    strategy: CrdStrategy,
}

impl Server {
    fn find(&self, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.strategy.custom.find(|entry| &*entry.version == version && &*entry.plural == plural)
    }
}

impl Server {
    fn settled(&self, definition: &Value) -> Value {
        match self.strategy.settled(definition) {
            Some(Settled::Update(definition)) => definition,
            other => panic!("{other:?}"),
        }
    }

    fn create(&self, mut object: Value) -> Result<Value, Vec<String>> {
        self.strategy.default(&mut object);
        self.strategy.prepare_create(&mut object);
        let object = self.settled(&object);
        let causes = self.strategy.validate(None, &object);
        if !causes.is_empty() {
            return Err(causes.iter().map(ToString::to_string).collect());
        }
        self.strategy.committed(None, Some(&object));
        Ok(object)
    }

    fn update(&self, old: &Value, mut new: Value) -> Result<Value, Vec<String>> {
        self.strategy.default(&mut new);
        self.strategy.prepare_update(old, &mut new);
        let new = self.settled(&new);
        let causes = self.strategy.validate(Some(old), &new);
        if !causes.is_empty() {
            return Err(causes.iter().map(ToString::to_string).collect());
        }
        self.strategy.committed(Some(old), Some(&new));
        Ok(new)
    }
}

fn check(change: impl FnOnce(&mut Value), expect: &[&str]) {
    let mut object = definition();
    change(&mut object);
    let found = Server::default().create(object).err().unwrap_or_default();
    assert_eq!(found.len(), expect.len(), "{found:?}");
    for (found, expect) in found.iter().zip(expect) {
        assert!(found.starts_with(expect), "{found:?} is not {expect:?}");
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    object["status"]["conditions"].as_array().unwrap().iter().find(|condition| condition["type"] == kind).unwrap()
}

#[test]
fn a_definition_is_established_and_served_at_once() {
    let server = Server::default();
    let object = server.create(definition()).unwrap();
    assert_eq!(object["spec"]["names"]["singular"], "at");
    assert_eq!(object["spec"]["names"]["listKind"], "AtList");
    assert_eq!(object["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(object["metadata"].get("finalizers"), None);
    assert_eq!(object["status"]["storedVersions"], json!(["v1alpha1"]));
    assert_eq!(object["status"]["acceptedNames"], object["spec"]["names"]);
    assert_eq!(condition(&object, "Established")["status"], "True");
    let entry = server.find("v1alpha1", "ats").unwrap();
    assert_eq!((&*entry.kind, &*entry.list_kind, &*entry.singular), ("At", "AtList", "at"));
    assert_eq!(entry.schema.name, "com.d2iq.cnat.v1alpha1.At");
    assert!(entry.status && entry.scale.is_none() && entry.namespaced && entry.schema.custom);
    assert_eq!(entry.columns[0].name, "Schedule");
    assert_eq!(entry.selectable[0].label, "status.phase");
    let metadata = entry.schema.node().field("metadata").unwrap();
    assert!(metadata.field("finalizers").is_some());
}

#[test]
fn a_deleted_definition_is_no_longer_served() {
    let server = Server::default();
    let old = server.create(definition()).unwrap();
    let mut going = old.clone();
    going["metadata"]["deletionTimestamp"] = "2024-01-01T00:01:00Z".into();
    server.strategy.prepare_delete(&mut going);
    assert_eq!(going["metadata"]["finalizers"], json!([CLEANUP]));
    assert_eq!(condition(&going, "Terminating")["lastTransitionTime"], "2024-01-01T00:01:00Z");
    server.strategy.committed(Some(&old), Some(&going));
    let entry = server.find("v1alpha1", "ats").unwrap();
    assert!(!entry.verbs.contains(&"create") && entry.verbs.contains(&"delete"));
    server.strategy.committed(Some(&going), None);
    assert!(server.find("v1alpha1", "ats").is_none());
}

#[test]
fn a_kind_without_columns_has_its_age() {
    let server = Server::default();
    let mut object = definition();
    object["spec"]["versions"][0].as_object_mut().unwrap().remove("additionalPrinterColumns");
    server.create(object).unwrap();
    let entry = server.find("v1alpha1", "ats").unwrap();
    assert_eq!((entry.columns.len(), &*entry.columns[0].name, &*entry.columns[0].kind), (1, "Age", "date"));
}

#[test]
fn all_versions_share_one_storage() {
    let server = Server::default();
    let old = server.create(definition()).unwrap();
    let mut new = old.clone();
    let mut version = new["spec"]["versions"][0].clone();
    version["name"] = "v1".into();
    new["spec"]["versions"][0]["storage"] = false.into();
    new["spec"]["versions"].as_array_mut().unwrap().push(version);
    let new = server.update(&old, new).unwrap();
    assert_eq!(new["status"]["storedVersions"], json!(["v1alpha1", "v1"]));
    let entries: Vec<_> = ["v1alpha1", "v1"].map(|it| server.find(it, "ats").unwrap()).into();
    assert_eq!(entries[0].storage, entries[1].storage);
    assert_eq!((&*entries[0].stored_as.1, &*entries[1].stored_as.1), ("v1", "v1"));
    let mut gone = new.clone();
    gone["spec"]["versions"].as_array_mut().unwrap().remove(0);
    let refused = server.update(&new, gone).unwrap_err();
    assert_eq!(refused.len(), 1);
    let expect =
        "status.storedVersions[0]: Invalid value: \"v1alpha1\": missing from spec.versions; v1alpha1 was previously";
    assert!(refused[0].starts_with(expect), "{refused:?}");
}

#[test]
fn names_in_use_are_not_accepted() {
    let server = Server::default();
    server.create(definition()).unwrap();
    let mut other = definition();
    other["metadata"]["name"] = "others.cnat.d2iq.com".into();
    other["spec"]["names"]["plural"] = "others".into();
    let other = server.create(other).unwrap();
    assert_eq!(condition(&other, "NamesAccepted")["reason"], "ListKindConflict");
    assert_eq!(condition(&other, "NamesAccepted")["message"], "\"AtList\" is already in use");
    assert_eq!(other["status"]["acceptedNames"]["plural"], "others");
    assert_eq!(other["status"]["acceptedNames"].get("singular"), None);
    assert_eq!(condition(&other, "Established")["status"], "False");
    assert!(server.find("v1alpha1", "others").is_none());
    let mut renamed = other.clone();
    renamed["spec"]["names"] =
        json!({"plural": "others", "singular": "other", "kind": "Other", "listKind": "OtherList"});
    server.update(&other, renamed).unwrap();
    assert!(server.find("v1alpha1", "others").is_some());
}

#[test]
fn invalid_definitions_are_refused_as_in_kubernetes() {
    check(|_| {}, &[]);
    let mut named = definition();
    named["metadata"]["name"] = "x".into();
    let wrong: Vec<_> = check_definition(&named).iter().map(ToString::to_string).collect();
    assert_eq!(wrong, ["metadata.name: Invalid value: \"x\": must be spec.names.plural+\".\"+spec.group"]);
    check(|object| object["spec"]["scope"] = "Wide".into(), &["spec.scope: Unsupported value: \"Wide\""]);
    check(
        |object| object["spec"]["versions"][0]["storage"] = false.into(),
        &[
            "spec.versions: Invalid value: [{\"Name\":\"v1alpha1\",\"Served\":true,\"Storage\":false,\"Deprecated\":false,",
            "status.storedVersions: Invalid value: null: must have at least one stored version",
        ],
    );
    check(
        |object| object["spec"]["versions"][0]["schema"] = Value::Null,
        &[
            "spec.versions[0].schema.openAPIV3Schema: Required value",
            "spec.selectableFields: Invalid value: \"\": may only be set when validations.schema is included",
        ],
    );
    check(
        |object| object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["type"] = "string".into(),
        &[
            "spec.validation.openAPIV3Schema.type: Invalid value: \"string\": only \"object\" is allowed as the type at the \
             root of the schema if the status subresource is enabled",
            "spec.validation.openAPIV3Schema.type: Invalid value: \"string\": must be object at the root",
        ],
    );
    check(
        |object| object["spec"]["names"]["listKind"] = "At".into(),
        &["spec.names.listKind: Invalid value: \"At\": kind and listKind may not be the same"],
    );
    check(
        |object| {
            object["metadata"]["name"] = "ats.apps".into();
            object["spec"]["group"] = "apps".into();
        },
        &["spec.group: Invalid value: \"apps\": should be a domain with at least one dot"],
    );
    check(
        |object| {
            object["metadata"]["name"] = "ats.x.k8s.io".into();
            object["spec"]["group"] = "x.k8s.io".into();
        },
        &["metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval"],
    );
}

#[test]
fn the_root_of_a_schema_is_checked() {
    let root = |keyword: &'static str, value: Value| {
        move |object: &mut Value| {
            let spec = &mut object["spec"];
            spec["versions"][0]["schema"]["openAPIV3Schema"][keyword] = value;
            spec["versions"][0]["subresources"] = Value::Null;
        }
    };
    let at = "spec.validation.openAPIV3Schema";
    let nullable = format!("{at}.nullable: Forbidden: nullable cannot be true at the root");
    check(root("nullable", true.into()), &[&nullable]);
    let missing = ["apiVersion", "kind"].map(|name| format!("{at}.default.{name}: Required value"));
    check(root("default", json!({})), &[&missing[0], &missing[1]]);
    check(root("maxProperties", 5.into()), &[]);
    check(
        |object| object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["maxProperties"] = 5.into(),
        &[&format!("{at}: Invalid value: {{\"ID\":\"\",\"Schema\":\"\",\"Ref\":null,\"Description\":\"\",")],
    );
    check(
        |object| {
            object["spec"]["preserveUnknownFields"] = true.into();
            let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/replicas/default";
            let parent = object.pointer_mut(spec.trim_end_matches("/default")).unwrap();
            parent["default"] = 1.into();
        },
        &[
            "spec.preserveUnknownFields: Invalid value: true: must be false in order to use defaults in the schema",
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true",
        ],
    );
}

#[test]
fn subresources_columns_and_selectable_fields_are_checked() {
    check(
        |object| object["spec"]["versions"][0]["subresources"]["scale"] = json!({"specReplicasPath": ".status.x"}),
        &[
            "spec.subresources.scale.specReplicasPath: Invalid value: \".status.x\": should be a json path under .spec",
            "spec.subresources.scale.statusReplicasPath: Required value",
        ],
    );
    check(
        |object| object["spec"]["versions"][0]["additionalPrinterColumns"][0]["type"] = "text".into(),
        &["spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of boolean,date,integer"],
    );
    check(
        |object| object["spec"]["versions"][0]["selectableFields"][0]["jsonPath"] = ".spec".into(),
        &["spec.selectableFields[0].jsonPath: Invalid value: \".spec\": must point to a field of type"],
    );
    check(
        |object| object["spec"]["conversion"] = json!({"strategy": "Webhook"}),
        &[
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            "spec.conversion.conversionReviewVersions: Required value",
        ],
    );
}

#[test]
fn a_conversion_needs_a_webhook_that_can_be_called() {
    let client = "spec.conversion.webhookClientConfig";
    let reviews = "spec.conversion.conversionReviewVersions";
    let conversion = |strategy: &'static str, client: Value, reviews: Value| {
        let webhook = json!({"clientConfig": client, "conversionReviewVersions": reviews});
        move |object: &mut Value| object["spec"]["conversion"] = json!({"strategy": strategy, "webhook": webhook})
    };
    let (url, v1) = (json!({"url": "https://a/b"}), json!(["v1"]));
    check(conversion("Webhook", url.clone(), v1.clone()), &[]);
    check(conversion("Webhook", url.clone(), json!(["v9", "v1beta1"])), &[]);
    check(conversion("Webhook", json!({}), v1.clone()), &[&format!("{client}: Required value: exactly one of url or")]);
    let both = json!({"url": "https://a/b", "service": {"name": "a", "namespace": "b"}});
    check(conversion("Webhook", both, v1.clone()), &[&format!("{client}: Required value: exactly one of url or")]);
    let plain = json!({"url": "http://a/b"});
    check(conversion("Webhook", plain, v1.clone()), &[&format!("{client}.url: Invalid value: \"http\": 'https'")]);
    let service = json!({"service": {"name": "a", "namespace": ""}});
    let missing = format!("{client}.service.name: Required value");
    check(conversion("Webhook", service, v1.clone()), &[&missing]);
    let bundle = json!({"url": "https://a/b", "caBundle": "eA=="});
    // Until a CRD is established, its certificates aren't checked.
    check(conversion("Webhook", bundle, v1.clone()), &[]);
    for (versions, why) in [
        (json!(["v2"]), format!("{reviews}: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1")),
        (json!(["v1", "v1"]), format!("{reviews}[1]: Invalid value: \"v1\": duplicate version")),
        (json!(["v1", "1"]), format!("{reviews}[1]: Invalid value: \"1\": a DNS-1035 label")),
    ] {
        check(conversion("Webhook", url.clone(), versions), &[&why]);
    }
    let unwanted = [format!("{client}: Forbidden"), format!("{reviews}: Forbidden")];
    check(conversion("None", url, v1), &[&unwanted[0], &unwanted[1]]);
    check(
        |object| object["spec"]["conversion"] = json!({"strategy": "Magic"}),
        &["spec.conversion.strategy: Unsupported value: \"Magic\": supported values: \"None\", \"Webhook\""],
    );
}

#[test]
fn a_definition_whose_converter_has_unreadable_certificates_is_not_established() {
    let pem = |label: &str, content: &str| format!("-----BEGIN {label}-----\n{content}\n-----END {label}-----\n");
    let certificate = include_str!("../../../certificate_verifier/testdata/openssl-server.pem");
    let no_certificate = pem("CERTIFICATE", "AAAA");
    let established = |bundle: &str| {
        let server = Server::default();
        let mut object = definition();
        let client = json!({"url": "https://a/b", "caBundle": STANDARD.encode(bundle)});
        let webhook = json!({"clientConfig": client, "conversionReviewVersions": ["v1"]});
        object["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": webhook});
        let object = server.create(object).unwrap();
        (condition(&object, "Established").clone(), server, object)
    };
    for bundle in ["", certificate, &format!("{no_certificate}{certificate} rest")] {
        assert_eq!(established(bundle).0["status"], "True", "{bundle}");
    }
    for bundle in ["\n", "x", &no_certificate, &pem("PRIVATE KEY", "AAAA")] {
        let (established, server, old) = established(bundle);
        assert_eq!(established["status"], "False", "{bundle}");
        assert_eq!(established["reason"], "InvalidCABundle");
        assert!(server.find("v1alpha1", "ats").is_none());
        let mut new = old.clone();
        new["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = STANDARD.encode(certificate).into();
        let new = server.update(&old, new).unwrap();
        assert_eq!(condition(&new, "Established")["status"], "True");
        assert!(server.find("v1alpha1", "ats").is_some());
    }
}

#[test]
fn the_scope_is_immutable() {
    let server = Server::default();
    let old = server.create(definition()).unwrap();
    let mut new = old.clone();
    new["spec"]["scope"] = "Cluster".into();
    assert_eq!(server.update(&old, new).unwrap_err(), ["spec.scope: Invalid value: \"Cluster\": field is immutable"]);
}
