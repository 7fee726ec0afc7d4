//! `config/default` with cert-manager enabled, as rendered by kubectl.

use std::{collections::BTreeMap, path::Path, process::Command};

use kubewright_manifests::yaml;
use serde_json::{Value, json};

use crate::folder::{Folder, files};

const DEFAULT: &str = "config/default/kustomization.yaml";
const INJECT: &str = "cert-manager.io/inject-ca-from";

/// Copies a golden project.
fn golden(name: &str) -> Folder {
    let folder = Folder::new(name);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name);
    for (path, text) in files(&root, false) {
        folder.write(&path, &text);
    }
    folder
}

/// Uncomments the lines after a word, as users do, and returns their number.
fn turn_on(folder: &Folder, path: &str, words: &[&str]) -> usize {
    let (mut text, mut lines, mut is_on) = (String::new(), 0, false);
    for line in folder.read(path).lines() {
        let is_code = line.starts_with('#') && !line.starts_with("# [") && !line.starts_with("# +");
        is_on = is_code && is_on || words.iter().any(|word| line.starts_with(&format!("# [{word}]")));
        lines += usize::from(is_code && is_on);
        text.push_str(if is_code && is_on { &line[1..] } else { line });
        text.push('\n');
    }
    folder.write(path, &text);
    lines
}

/// Renders the objects, by kind and name.
fn render(folder: &Folder) -> BTreeMap<String, Value> {
    let output = Command::new("kubectl").arg("kustomize").arg(folder.path().join("config/default")).output();
    let output = output.expect("kubectl runs (cargo xtask test installs it)");
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{complaints}");
    assert!(!complaints.contains("deprecated"), "{complaints}");
    let objects = yaml::read(&String::from_utf8(output.stdout).unwrap()).unwrap().into_iter();
    let name = |object: &Value| {
        let [kind, name] = ["/kind", "/metadata/name"].map(|path| object.pointer(path).unwrap().as_str().unwrap());
        format!("{kind}/{name}")
    };
    objects.map(|object| (name(&object), object)).collect()
}

/// Returns the arguments and mounts of the manager.
fn manager<'a>(objects: &'a BTreeMap<String, Value>, name: &str) -> (Vec<&'a str>, Value, Value) {
    let pod = &objects[&format!("Deployment/{name}-controller-manager")]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let arguments = container["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
    (arguments.collect(), container["volumeMounts"].clone(), pod["volumes"].clone())
}

#[test]
fn cert_manager_is_disabled_by_default() {
    let objects = render(&golden("project"));
    let text = serde_json::to_string(&objects).unwrap();
    for word in ["cert-manager", "cert-path", "Certificate", "ServiceMonitor", "NetworkPolicy"] {
        assert!(!text.contains(word), "{word}");
    }
    let (_, mounts, volumes) = manager(&objects, "project");
    assert_eq!((mounts, volumes), (json!([]), json!([])));
}

#[test]
fn certificates_have_the_names_of_the_services() {
    let folder = golden("project-conversion");
    assert_eq!(turn_on(&folder, DEFAULT, &["CERTMANAGER", "PROMETHEUS", "NETWORK POLICY"]), 11);
    assert_eq!(turn_on(&folder, "config/prometheus/kustomization.yaml", &["CERTMANAGER"]), 4);
    folder.edit(DEFAULT, "namespace: project-conversion-system", "namespace: barn");
    folder.edit(DEFAULT, "namePrefix: project-conversion-", "namePrefix: red-");
    let objects = render(&folder);
    for (certificate, service, secret) in [
        ("serving-cert", "webhook-service", "webhook-server-cert"),
        ("metrics-certs", "controller-manager-metrics-service", "metrics-server-cert"),
    ] {
        let certificate = &objects[&format!("Certificate/red-{certificate}")];
        assert!(objects.contains_key(&format!("Service/red-{service}")));
        let names = [format!("red-{service}.barn.svc"), format!("red-{service}.barn.svc.cluster.local")];
        let issuer = json!({"kind": "Issuer", "name": "red-selfsigned-issuer"});
        assert_eq!(certificate["spec"], json!({"dnsNames": names, "issuerRef": issuer, "secretName": secret}));
        assert_eq!(certificate["metadata"]["namespace"], "barn");
    }
    assert_eq!(objects["Issuer/red-selfsigned-issuer"]["metadata"]["namespace"], "barn");
    for asked in [
        "MutatingWebhookConfiguration/red-mutating-webhook-configuration",
        "CustomResourceDefinition/captains.crew.testproject.org",
        "CustomResourceDefinition/firstmates.crew.testproject.org",
    ] {
        assert_eq!(objects[asked]["metadata"]["annotations"][INJECT], "barn/red-serving-cert", "{asked}");
    }
    let (arguments, mounts, volumes) = manager(&objects, "red");
    let mounted = |name: &str, secret: &str, path: &str| {
        assert!(mounts.as_array().unwrap().contains(&json!({"name": name, "mountPath": path, "readOnly": true})));
        assert!(volumes.as_array().unwrap().contains(&json!({"name": name, "secret": {"secretName": secret}})));
    };
    for (flag, name, secret) in [
        ("--webhook-cert-path=", "webhook-certs", "webhook-server-cert"),
        ("--metrics-cert-path=", "metrics-certs", "metrics-server-cert"),
    ] {
        let path = arguments.iter().find_map(|argument| argument.strip_prefix(flag)).unwrap();
        mounted(name, secret, path);
    }
    let monitor = &objects["ServiceMonitor/red-controller-manager-metrics-monitor"];
    assert_eq!(monitor["spec"]["endpoints"][0]["tlsConfig"]["ca"]["secret"]["name"], "metrics-server-cert");
    assert!(objects.contains_key("NetworkPolicy/red-allow-webhook-traffic"));
}

#[test]
fn webhook_configurations_and_converted_definitions_get_the_certificate() {
    let folder = golden("project");
    turn_on(&folder, DEFAULT, &["CERTMANAGER"]);
    let objects = render(&folder);
    let is_reported = |object: &Value| object["metadata"]["annotations"][INJECT].is_string();
    let annotated: Vec<_> = objects.iter().filter(|(_, object)| is_reported(object)).map(|(name, _)| name).collect();
    let expected = [
        "MutatingWebhookConfiguration/project-mutating-webhook-configuration",
        "ValidatingWebhookConfiguration/project-validating-webhook-configuration",
    ];
    assert_eq!(annotated, expected);
}

#[test]
fn enabled_options_stay_enabled_when_webhooks_are_added() {
    let folder = Folder::with_captain();
    // The output of kubewright manifests.
    let generated = |path: &str| folder.write(path, &golden("project-conversion").read(path));
    generated("config/crd/bases/crew.testproject.org_captains.yaml");
    turn_on(&folder, DEFAULT, &["CERTMANAGER"]);
    let objects = render(&folder);
    assert!(objects.contains_key("Certificate/ship-metrics-certs"));
    assert!(!objects.contains_key("Certificate/ship-serving-cert"));
    folder.run("create webhook --group crew --version v1 --kind Captain --defaulting");
    folder.run("create api --group crew --version v2 --kind Captain --controller=false");
    folder.run("create webhook --group crew --version v2 --kind Captain --conversion --spoke v1");
    generated("config/webhook/manifests.yaml");
    let objects = render(&folder);
    assert!(objects.contains_key("Certificate/ship-serving-cert"));
    let (arguments, ..) = manager(&objects, "ship");
    assert_eq!(arguments.iter().filter(|argument| argument.contains("-cert-path=")).count(), 2, "{arguments:?}");
    let definition = &objects["CustomResourceDefinition/captains.crew.testproject.org"];
    assert_eq!(definition["metadata"]["annotations"][INJECT], "ship-system/ship-serving-cert");
}
