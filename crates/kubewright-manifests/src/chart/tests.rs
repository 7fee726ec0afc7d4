use serde_json::json;

use super::*;

fn objects() -> Vec<Value> {
    let container = json!({
        "name": "manager", "image": "registry:5000/me/cow:v1", "args": ["--webhook-name=cow"],
        "resources": {"limits": {"cpu": "500m"}},
    });
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cow-system"}}),
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "cows.my.domain"},
            "spec": {"description": "Say {{ moo }}."},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "cow-controller-manager", "namespace": "cow-system",
                "labels": {"app.kubernetes.io/managed-by": "kustomize"},
            },
            "spec": {"replicas": 1, "template": {"spec": {"containers": [container]}}},
        }),
    ]
}

fn files() -> Vec<(String, String)> {
    let files = chart(&objects(), &About::new("cow", "0.1.0")).unwrap();
    files.into_iter().map(|file| (file.path.strip_prefix("dist/chart/").unwrap().to_owned(), file.text)).collect()
}

fn text(path: &str) -> String {
    files().into_iter().find(|(name, _)| name == path).unwrap_or_else(|| panic!("{path} in {:?}", files())).1
}

#[test]
fn a_chart_has_no_namespace() {
    let paths: Vec<_> = files().into_iter().map(|(path, _)| path).collect();
    let expected = [
        ".helmignore",
        "Chart.yaml",
        "templates/crd/cows.my.domain.yaml",
        "templates/deployment-cow-controller-manager.yaml",
        "values.yaml",
    ];
    assert_eq!(paths, expected);
    let about = yaml::read(&text("Chart.yaml")).unwrap().remove(0);
    assert_eq!(
        (&about["name"], &about["version"], &about["apiVersion"]),
        (&json!("cow"), &json!("0.1.0"), &json!("v2"))
    );
}

#[test]
fn values_come_from_the_deployment() {
    let values: Value = yaml::read(&text("values.yaml")).unwrap().remove(0);
    let manager = json!({
        "image": {"repository": "registry:5000/me/cow", "tag": "v1", "pullPolicy": "IfNotPresent"},
        "replicas": 1, "resources": {"limits": {"cpu": "500m"}}, "nodeSelector": {}, "tolerations": [], "affinity": {},
    });
    assert_eq!(values, json!({"crd": {"enable": true, "keep": true}, "manager": manager}));
    let deployment = text("templates/deployment-cow-controller-manager.yaml");
    for line in [
        "  namespace: {{ .Release.Namespace }}",
        "    app.kubernetes.io/managed-by: {{ .Release.Service }}",
        "  replicas: {{ .Values.manager.replicas }}",
        "        imagePullPolicy: {{ .Values.manager.image.pullPolicy }}",
        "        image: \"{{ .Values.manager.image.repository }}{{ with .Values.manager.image.tag }}:{{ . }}{{ end }}\"",
        "        resources:\n{{ toYaml .Values.manager.resources | indent 10 }}",
        "      nodeSelector:\n{{ toYaml .Values.manager.nodeSelector | indent 8 }}",
        "        - --webhook-name=cow",
    ] {
        assert!(deployment.contains(&format!("{line}\n")), "{line} in\n{deployment}");
    }
    assert!(!deployment.contains("kram"), "{deployment}");
}

#[test]
fn definitions_are_optional_and_their_braces_are_escaped() {
    let expected = "\
{{- if .Values.crd.enable }}
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  {{- if .Values.crd.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
  name: cows.my.domain
spec:
  description: Say {{ \"{{\" }} moo }}.
{{- end }}
";
    assert_eq!(text("templates/crd/cows.my.domain.yaml"), expected);
}

#[test]
fn certificates_have_the_namespace_of_the_release() {
    let metadata = json!({"name": "cow-serving-cert", "namespace": "cow-system"});
    let spec = json!({"dnsNames": ["cow-webhook-service.cow-system.svc", "cow.cow-system.example.com"]});
    let certificate = json!({"kind": "Certificate", "metadata": metadata, "spec": spec});
    let annotations =
        json!({"cert-manager.io/inject-ca-from": "cow-system/cow-serving-cert", "image": "cow-system/moo"});
    let configuration = json!({"kind": "MutatingWebhookConfiguration", "metadata": {"annotations": annotations}});
    let [certificate, configuration] =
        [certificate, configuration].map(|object| Template::of(object, &["cow-system".into()]).text().unwrap());
    for (text, line) in [
        (&certificate, "  namespace: {{ .Release.Namespace }}\n"),
        (&certificate, "  - cow-webhook-service.{{ .Release.Namespace }}.svc\n"),
        (&certificate, "  - cow.cow-system.example.com\n"),
        (&configuration, "    cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/cow-serving-cert\n"),
        (&configuration, "    image: cow-system/moo\n"),
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
}

#[test]
fn images_are_split_into_repository_and_tag() {
    for (given, expected) in [
        ("cow", ("cow", "")),
        ("cow:v1", ("cow", "v1")),
        ("localhost:5000/cow", ("localhost:5000/cow", "")),
        ("cow@sha256:12", ("cow@sha256:12", "")),
    ] {
        assert_eq!(image(given), expected);
    }
}
