//! The objects that serve a catalog, and those that install an operator from it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::CatalogBundle;
use crate::olm::CSV_VERSION;

/// The label with the name of the CatalogSource that an object serves.
pub const CATALOG_LABEL: &str = "kubewright.dev/catalog-source";
/// The label of objects that this program created, and its value.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "kubewright");
/// The annotation of a CatalogSource with the image that serves the catalog. It is that of operator-sdk.
pub const INDEX_IMAGE: &str = "operators.operatorframework.io/index-image";
/// The name of a new OperatorGroup.
pub const GROUP_NAME: &str = "kubewright-operator-group";

/// The label that selects the pods of a server.
const SERVER: &str = "kubewright.dev/catalog-server";
const PORT: u16 = 50051;
/// The directory of catalogs in an index image.
const CONFIGS: &str = "/configs";
const FILE: &str = "catalog.json";
/// The most characters of a label, and of the name of a Service.
const LABEL: usize = 63;

/// Where and how a catalog is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CatalogOptions {
    /// The namespace.
    pub namespace: String,
    /// The image with the program `opm`, and optionally with other catalogs in `/configs`.
    pub index_image: String,
    /// The Secret with the credentials for images.
    pub pull_secret: Option<String>,
    /// The service account of the pod.
    pub service_account: Option<String>,
    /// Whether pods comply with the pod security standard `restricted`.
    pub is_restricted: bool,
}

/// Returns the name of the CatalogSource of a package. It is that of operator-sdk.
pub fn catalog_name(package: &str) -> String {
    format!("{}-catalog", short(package, LABEL - "-catalog".len()))
}

/// The objects that serve a catalog. Their name contains a hash of the catalog, so those of the next catalog can be
/// created beside them.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogServer {
    name: String,
    source: String,
    package: String,
    catalog: String,
    options: CatalogOptions,
}

impl CatalogServer {
    /// Creates the server of a package's catalog.
    pub fn new(package: &str, catalog: &str, options: CatalogOptions) -> Self {
        let hash = hash(&[catalog, &format!("{options:?}")]);
        let name = format!("catalog-{}-{hash}", short(package, LABEL - "catalog--".len() - hash.len()));
        Self { name, source: catalog_name(package), package: package.into(), catalog: catalog.into(), options }
    }

    /// Returns the name of the objects.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the CatalogSource.
    pub fn source_name(&self) -> &str {
        &self.source
    }

    /// Returns the objects: a ConfigMap with the catalog, a Deployment and a Service.
    pub fn objects(&self) -> [Value; 3] {
        let metadata = self.metadata();
        let ports = json!([{"name": "grpc", "port": PORT, "targetPort": "grpc"}]);
        [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {FILE: self.catalog}}),
            self.deployment(),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": metadata,
                "spec": {"selector": {SERVER: self.name}, "ports": ports},
            }),
        ]
    }

    /// Returns the CatalogSource with the address of the Service.
    pub fn source(&self) -> Value {
        let CatalogOptions { namespace, pull_secret, .. } = &self.options;
        let (label, value) = MANAGED_BY;
        json!({
            "apiVersion": CSV_VERSION,
            "kind": "CatalogSource",
            "metadata": {
                "name": self.source,
                "namespace": namespace,
                "labels": {label: value},
                "annotations": {INDEX_IMAGE: self.options.index_image},
            },
            "spec": {
                "sourceType": "grpc",
                "address": format!("{}.{namespace}.svc:{PORT}", self.name),
                "displayName": self.package,
                "publisher": "kubewright",
                "secrets": pull_secret.iter().collect::<Vec<_>>(),
                "grpcPodConfig": {"securityContextConfig": if self.options.is_restricted { "restricted" } else { "legacy" }},
            },
        })
    }

    fn metadata(&self) -> Value {
        let (label, value) = MANAGED_BY;
        let labels = json!({label: value, CATALOG_LABEL: self.source});
        json!({"name": self.name, "namespace": self.options.namespace, "labels": labels})
    }

    fn deployment(&self) -> Value {
        let options = &self.options;
        // A file that is mounted by a subPath has no links beside it, which opm would read as further copies of the
        // catalog.
        let mount = json!({
            "name": "catalog", "readOnly": true,
            "mountPath": format!("{CONFIGS}/{}/{FILE}", self.name), "subPath": FILE,
        });
        let mut container = json!({
            "name": "registry-grpc",
            "image": options.index_image,
            "command": ["opm", "serve", CONFIGS, format!("--port={PORT}")],
            "ports": [{"name": "grpc", "containerPort": PORT}],
            "readinessProbe": {"tcpSocket": {"port": "grpc"}, "periodSeconds": 2},
            "volumeMounts": [mount],
        });
        let mut spec = json!({"volumes": [{"name": "catalog", "configMap": {"name": self.name}}]});
        if options.is_restricted {
            spec["securityContext"] = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
            container["securityContext"] =
                json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        }
        if let Some(account) = &options.service_account {
            spec["serviceAccountName"] = account.as_str().into();
        }
        if let Some(secret) = &options.pull_secret {
            spec["imagePullSecrets"] = json!([{"name": secret}]);
        }
        spec["containers"] = json!([container]);
        let labels = json!({SERVER: self.name, CATALOG_LABEL: self.source});
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": self.metadata(),
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {SERVER: self.name}},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        })
    }
}

/// Returns an OperatorGroup with target namespaces; none for all namespaces.
pub fn operator_group(namespace: &str, targets: &BTreeSet<String>) -> Value {
    let (label, value) = MANAGED_BY;
    let spec = if targets.is_empty() { json!({}) } else { json!({"targetNamespaces": targets}) };
    json!({
        "apiVersion": "operators.coreos.com/v1",
        "kind": "OperatorGroup",
        "metadata": {"name": GROUP_NAME, "namespace": namespace, "labels": {label: value}},
        "spec": spec,
    })
}

/// Returns a Subscription to a bundle in a channel of a CatalogSource, whose InstallPlans have to be approved.
pub fn subscription(bundle: &CatalogBundle, channel: &str, namespace: &str) -> Value {
    let (label, value) = MANAGED_BY;
    json!({
        "apiVersion": CSV_VERSION,
        "kind": "Subscription",
        "metadata": {"name": bundle.package(), "namespace": namespace, "labels": {label: value}},
        "spec": {
            "name": bundle.package(),
            "channel": channel,
            "source": catalog_name(bundle.package()),
            "sourceNamespace": namespace,
            "startingCSV": bundle.name(),
            "installPlanApproval": "Manual",
        },
    })
}

/// Returns the beginning of a name as a DNS label.
fn short(name: &str, longest: usize) -> String {
    let of = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let text: String = name.chars().take(longest).map(of).collect();
    text.trim_matches('-').to_owned()
}

/// Returns eight digits of a hash of texts (FNV-1a).
fn hash(texts: &[&str]) -> String {
    let mut state = 0x811c_9dc5_u32;
    for byte in texts.iter().flat_map(|text| text.bytes().chain([0])) {
        state = (state ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    format!("{state:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::olm::{catalog::bundle::tests::files, items, text};

    fn options() -> CatalogOptions {
        CatalogOptions {
            namespace: "barn".into(),
            index_image: "example.com/opm:v1".into(),
            ..CatalogOptions::default()
        }
    }

    #[test]
    fn a_catalog_is_served_by_a_pod_and_a_service() {
        let server = CatalogServer::new("cow", "{}\n", options());
        let name = server.name();
        assert!(name.starts_with("catalog-cow-") && name.len() == "catalog-cow-".len() + 8, "{name}");
        let [config, deployment, service] = server.objects();
        assert_eq!(config["data"], json!({"catalog.json": "{}\n"}));
        let pod = &deployment["spec"]["template"];
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["command"], json!(["opm", "serve", "/configs", "--port=50051"]));
        assert_eq!(text(container, "/volumeMounts/0/mountPath"), format!("/configs/{name}/catalog.json"));
        assert_eq!(pod["spec"]["volumes"][0]["configMap"]["name"], *name);
        assert!(pod["spec"].get("securityContext").is_none() && pod["spec"].get("imagePullSecrets").is_none());
        assert_eq!(
            service["spec"]["selector"]["kubewright.dev/catalog-server"],
            pod["metadata"]["labels"]["kubewright.dev/catalog-server"]
        );
        for object in server.objects() {
            assert_eq!((text(&object, "/metadata/name"), text(&object, "/metadata/namespace")), (name, "barn"));
            assert_eq!(object["metadata"]["labels"][CATALOG_LABEL], "cow-catalog");
        }
        let source = server.source();
        assert_eq!(
            (text(&source, "/metadata/name"), text(&source, "/spec/address")),
            ("cow-catalog", &*format!("{name}.barn.svc:50051"))
        );
        assert_eq!(source["metadata"]["annotations"][INDEX_IMAGE], "example.com/opm:v1");
    }

    #[test]
    fn options_reach_the_pod_and_the_source() {
        let (pull_secret, service_account) = (Some("key".into()), Some("herd".into()));
        let server = CatalogServer::new(
            "cow",
            "",
            CatalogOptions { pull_secret, service_account, is_restricted: true, ..options() },
        );
        let [_, deployment, _] = server.objects();
        let spec = &deployment["spec"]["template"]["spec"];
        assert_eq!(
            (&spec["serviceAccountName"], &spec["imagePullSecrets"]),
            (&json!("herd"), &json!([{"name": "key"}]))
        );
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
        assert_eq!(spec["containers"][0]["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
        let source = server.source();
        assert_eq!(
            (items(&source, "/spec/secrets"), text(&source, "/spec/grpcPodConfig/securityContextConfig")),
            (&[json!("key")][..], "restricted")
        );
    }

    #[test]
    fn names_are_valid_and_change_with_the_catalog() {
        let long = "3.Scale_".repeat(20);
        let name = |catalog: &str| CatalogServer::new(&long, catalog, options()).name().to_owned();
        for name in [name("a"), name("b"), catalog_name(&long)] {
            let is_label = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
            assert!(is_label && name.len() <= 63, "{name}");
        }
        assert_ne!(name("a"), name("b"));
        assert_eq!(name("a"), name("a"));
    }

    #[test]
    fn an_operator_is_subscribed_to_with_manual_approval() {
        let bundle = CatalogBundle::read(&files(), "example.com/cow:v1").unwrap();
        let object = subscription(&bundle, "beta", "barn");
        let expected = json!({
            "name": "cow", "channel": "beta", "source": "cow-catalog", "sourceNamespace": "barn", "startingCSV": "cow.v0.2.0",
            "installPlanApproval": "Manual",
        });
        assert_eq!(object["spec"], expected);
        assert_eq!(operator_group("barn", &BTreeSet::new())["spec"], json!({}));
        let targets = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(operator_group("barn", &targets)["spec"], json!({"targetNamespaces": ["a", "b"]}));
    }
}
