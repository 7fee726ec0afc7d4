use serde_json::json;

use super::*;

fn objects() -> Vec<Value> {
    let container = json!({
        "name": "manager", "image": "registry:5000/me/cow:v1", "resources": {"limits": {"cpu": "500m"}},
        "args": ["--leader-elect", "--webhook-name=cow", "--metrics-bind-address=$(POD_IP):8443"],
        "ports": [{"name": "metrics", "containerPort": 8443}],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}, {"name": "MOO", "value": "1"}],
    });
    let service = |name: &str, port: u16, target: u16| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "cow-system"},
            "spec": {"ports": [{"port": port, "targetPort": target}], "selector": {"app.kubernetes.io/name": "cow"}},
        })
    };
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
            "spec": {"replicas": 1, "template": {"spec": {"securityContext": {"runAsNonRoot": true}, "containers": [container]}}},
        }),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "cow-moo-viewer-role"}}),
        service("cow-controller-manager-metrics-service", 8443, 8443),
        service("cow-webhook-service", 443, 9443),
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
        "templates/_helpers.tpl",
        "templates/clusterrole-cow-moo-viewer-role.yaml",
        "templates/crd/cows.my.domain.yaml",
        "templates/deployment-cow-controller-manager.yaml",
        "templates/service-cow-controller-manager-metrics-service.yaml",
        "templates/service-cow-webhook-service.yaml",
        "templates/servicemonitor-cow-controller-manager-metrics-monitor.yaml",
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
        "imagePullSecrets": [], "podSecurityContext": {"runAsNonRoot": true}, "securityContext": {},
        "args": ["--leader-elect"], "env": [{"name": "MOO", "value": "1"}],
    });
    assert_eq!(values["manager"], manager);
    assert_eq!(values["webhook"], json!({"enable": true, "port": 9443}));
    assert_eq!(values["metrics"], json!({"enable": true, "port": 8443}));
    assert_eq!((&values["prometheus"], &values["rbacHelpers"]), (&json!({"enable": false}), &json!({"enable": true})));
    assert_eq!((&values["crd"], &values["nameOverride"]), (&json!({"enable": true, "keep": true}), &json!("")));
    assert_eq!(values.get("certManager"), None);
    let deployment = text("templates/deployment-cow-controller-manager.yaml");
    for line in [
        "  name: {{ include \"chart.fullname\" . }}-controller-manager",
        "  namespace: {{ .Release.Namespace }}",
        "    app.kubernetes.io/managed-by: {{ .Release.Service }}",
        "  replicas: {{ .Values.manager.replicas }}",
        "        imagePullPolicy: {{ .Values.manager.image.pullPolicy }}",
        "        image: \"{{ .Values.manager.image.repository }}{{ with .Values.manager.image.tag }}:{{ . }}{{ end }}\"",
        "        resources:\n{{ toYaml .Values.manager.resources | indent 10 }}",
        "      nodeSelector:\n{{ toYaml .Values.manager.nodeSelector | indent 8 }}",
        "      securityContext:\n{{ toYaml .Values.manager.podSecurityContext | indent 8 }}",
        "      - args:\n        {{- with .Values.manager.args }}\n{{ toYaml . | indent 8 }}\n        {{- end }}",
        "        {{- if .Values.webhook.enable }}\n        - --webhook-name={{ include \"chart.fullname\" . }}\n        {{- end }}",
        "        - --metrics-bind-address=$(POD_IP):{{ .Values.metrics.port }}",
        "        {{- if .Values.metrics.enable }}\n        - containerPort: {{ .Values.metrics.port }}\n          name: metrics\n        {{- end }}",
        "              fieldPath: status.podIP\n        {{- with .Values.manager.env }}\n{{ toYaml . | indent 8 }}\n        {{- end }}",
    ] {
        assert!(deployment.contains(&format!("{line}\n")), "{line} in\n{deployment}");
    }
    assert!(!deployment.contains("kram"), "{deployment}");
}

#[test]
fn parts_are_optional() {
    for (path, condition, line) in [
        (
            "service-cow-controller-manager-metrics-service",
            ".Values.metrics.enable",
            "    targetPort: {{ .Values.metrics.port }}",
        ),
        ("service-cow-webhook-service", ".Values.webhook.enable", "  - port: 443"),
        (
            "clusterrole-cow-moo-viewer-role",
            ".Values.rbacHelpers.enable",
            "  name: {{ include \"chart.fullname\" . }}-moo-viewer-role",
        ),
        (
            "servicemonitor-cow-controller-manager-metrics-monitor",
            "and .Values.prometheus.enable .Values.metrics.enable",
            "      app.kubernetes.io/name: cow",
        ),
    ] {
        let text = text(&format!("templates/{path}.yaml"));
        assert!(
            text.starts_with(&format!("{{{{- if {condition} }}}}\napiVersion: ")) && text.ends_with("\n{{- end }}\n"),
            "{text}"
        );
        assert!(
            text.contains(&format!("{line}\n")) && !text.contains("kram") && !text.contains("offered"),
            "{line} in\n{text}"
        );
    }
}

#[test]
fn certificates_of_cert_manager_are_optional() {
    let mut objects = objects();
    let labels = json!({"name": "cow-serving-cert", "namespace": "cow-system"});
    objects.push(json!({"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": labels}));
    let manager = crate::installer::manager(&mut objects[2]).unwrap();
    manager["args"] = json!(["--webhook-cert-path=/certs"]);
    manager["volumeMounts"] = json!([{"name": "webhook-certs", "mountPath": "/certs"}]);
    objects[2]["spec"]["template"]["spec"]["volumes"] = json!([{"name": "webhook-certs"}, {"name": "mine"}]);
    let files = chart(&objects, &About::new("cow", "0.1.0")).unwrap();
    let text = |path: &str| files.iter().find(|file| file.path.ends_with(path)).unwrap().text.clone();
    assert_eq!(yaml::read(&text("values.yaml")).unwrap()[0]["certManager"], json!({"enable": true}));
    assert!(text("certificate-cow-serving-cert.yaml").starts_with("{{- if .Values.certManager.enable }}\n"));
    let deployment = text("deployment-cow-controller-manager.yaml");
    for lines in [
        "        {{- if .Values.certManager.enable }}\n        - --webhook-cert-path=/certs\n        {{- end }}\n",
        "        {{- if .Values.certManager.enable }}\n        - mountPath: /certs\n          name: webhook-certs\n        {{- end }}\n",
        "      {{- if .Values.certManager.enable }}\n      - name: webhook-certs\n      {{- end }}\n      - name: mine\n",
    ] {
        assert!(deployment.contains(lines), "{lines} in\n{deployment}");
    }
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
        [certificate, configuration].map(|object| Template::of(object, &["cow-system".into()], "cow").text().unwrap());
    for (text, line) in [
        (&certificate, "  namespace: {{ .Release.Namespace }}\n"),
        (&certificate, "  - {{ include \"chart.fullname\" . }}-webhook-service.{{ .Release.Namespace }}.svc\n"),
        (&certificate, "  - cow.cow-system.example.com\n"),
        (
            &configuration,
            "    cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/{{ include \"chart.fullname\" . }}-serving-cert\n",
        ),
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
        assert_eq!(deployment::image(given), expected);
    }
}
