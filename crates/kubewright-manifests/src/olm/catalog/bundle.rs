//! A bundle, and the catalog that has only it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::{
    olm::{ANNOTATION, CSV, items, text},
    yaml::{self, YamlError},
};

/// The most bytes of a ConfigMap.
const LONGEST: usize = 1 << 20;
/// The annotation with the examples of a bundle. It is for user interfaces only, and often the largest part.
const EXAMPLES: &str = "alm-examples";
const METADATA: &str = "metadata/annotations.yaml";

/// A bundle that can't be in a catalog.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// A file isn't YAML.
    #[error("{file}: {source}")]
    Yaml {
        /// The file in the bundle.
        file: String,
        /// What is wrong.
        source: YamlError,
    },
    /// A part that catalogs need is missing.
    #[error("{0}: run kubewright bundle validate")]
    Missing(String),
    /// The catalog does not fit into a ConfigMap.
    #[error(
        "the catalog of {name} has {size} bytes, but a ConfigMap has at most {LONGEST}: shorten the description and the annotations of the \
         ClusterServiceVersion"
    )]
    TooLarge {
        /// The name of the ClusterServiceVersion.
        name: String,
        /// The size of the catalog.
        size: usize,
    },
}

/// A bundle as a catalog lists it.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogBundle {
    image: String,
    package: String,
    channels: Vec<String>,
    service_version: Value,
    properties: Vec<Value>,
}

impl CatalogBundle {
    /// Reads the files of a bundle, by path in its directory, which are also in an image.
    ///
    /// # Errors
    /// If a file isn't YAML, or if the bundle has no package, no channel, or not one ClusterServiceVersion.
    pub fn read(files: &BTreeMap<String, String>, image: &str) -> Result<Self, CatalogError> {
        let annotations = document(files, METADATA)?;
        let annotation = |name: &str| {
            let value = annotations["annotations"].get(format!("{ANNOTATION}{name}")).and_then(Value::as_str);
            value
                .filter(|value| !value.is_empty())
                .ok_or_else(|| CatalogError::Missing(format!("{METADATA} has no {ANNOTATION}{name}")))
        };
        let package = annotation("package.v1")?.to_owned();
        let channels = annotation("channels.v1")?.split(',').map(|name| name.trim().to_owned()).collect();
        let mut objects = Vec::new();
        for (file, content) in files.iter().filter(|(path, _)| path.starts_with("manifests/")) {
            objects.extend(read(file, content)?);
        }
        let mut versions = objects.iter().filter(|object| object["kind"] == CSV);
        let (Some(service_version), None) = (versions.next().cloned(), versions.next()) else {
            return Err(CatalogError::Missing(format!("the bundle {package} doesn't have exactly one {CSV}")));
        };
        let mut properties = provided(&objects, &service_version);
        properties.extend(required(&service_version));
        properties.extend(dependencies(&document(files, "metadata/dependencies.yaml")?));
        properties.extend(items(&document(files, "metadata/properties.yaml")?, "/properties").iter().cloned());
        if !properties.iter().any(|property| property["type"] == "olm.package") {
            let version = text(&service_version, "/spec/version");
            properties.push(property("olm.package", json!({"packageName": package, "version": version})));
        }
        properties.sort_by_cached_key(|property| (text(property, "/type").to_owned(), property["value"].to_string()));
        properties.dedup();
        Ok(Self { image: image.into(), package, channels, service_version, properties })
    }

    /// Returns the image.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// Returns the name of the package.
    pub fn package(&self) -> &str {
        &self.package
    }

    /// Returns the name of the ClusterServiceVersion.
    pub fn name(&self) -> &str {
        text(&self.service_version, "/metadata/name")
    }

    /// Returns the channels, of which there is at least one.
    pub fn channels(&self) -> &[String] {
        &self.channels
    }

    /// Returns the types of the install modes that the operator supports, such as `AllNamespaces`.
    pub fn install_modes(&self) -> Vec<&str> {
        let modes = items(&self.service_version, "/spec/installModes").iter();
        modes.filter(|mode| mode["supported"] == true).map(|mode| text(mode, "/type")).collect()
    }

    /// Returns the catalog in JSON: a package, a channel, and the bundle as its only entry. The entry may replace an
    /// installed ClusterServiceVersion, which doesn't have to be in the catalog.
    ///
    /// # Errors
    /// If the catalog doesn't fit into a ConfigMap.
    pub fn catalog(&self, channel: &str, replaces: Option<&str>) -> Result<String, CatalogError> {
        let text = self.documents(channel, replaces, true);
        if text.len() < LONGEST {
            return Ok(text);
        }
        let text = self.documents(channel, replaces, false);
        let size = text.len();
        if size < LONGEST { Ok(text) } else { Err(CatalogError::TooLarge { name: self.name().into(), size }) }
    }

    fn documents(&self, channel: &str, replaces: Option<&str>, with_examples: bool) -> String {
        let mut entry = json!({"name": self.name()});
        if let Some(replaces) = replaces {
            entry["replaces"] = replaces.into();
        }
        let mut properties = self.properties.clone();
        properties.push(property("olm.csv.metadata", self.metadata(with_examples)));
        let documents = [
            json!({"schema": "olm.package", "name": self.package, "defaultChannel": channel}),
            json!({"schema": "olm.channel", "package": self.package, "name": channel, "entries": [entry]}),
            json!({
                "schema": "olm.bundle",
                "name": self.name(),
                "package": self.package,
                "image": self.image,
                "properties": properties,
                "relatedImages": self.related_images(),
            }),
        ];
        documents.iter().map(|document| format!("{document}\n")).collect()
    }

    /// Returns what catalogs tell user interfaces about the operator.
    fn metadata(&self, with_examples: bool) -> Value {
        let csv = &self.service_version;
        let mut metadata = Map::new();
        let mut add = |name: &str, pointer: &str| {
            if let Some(value) = csv.pointer(pointer) {
                metadata.insert(name.into(), value.clone());
            }
        };
        add("annotations", "/metadata/annotations");
        add("labels", "/metadata/labels");
        add("apiServiceDefinitions", "/spec/apiservicedefinitions");
        add("crdDescriptions", "/spec/customresourcedefinitions");
        for field in [
            "description",
            "displayName",
            "installModes",
            "keywords",
            "links",
            "maintainers",
            "maturity",
            "minKubeVersion",
            "nativeAPIs",
            "provider",
        ] {
            add(field, &format!("/spec/{field}"));
        }
        if !with_examples && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(EXAMPLES);
        }
        metadata.into()
    }

    /// Returns the images that a mirror has to copy: those that the bundle lists, its own, and those of its
    /// Deployments.
    fn related_images(&self) -> Vec<Value> {
        let mut all = items(&self.service_version, "/spec/relatedImages").to_vec();
        let known: BTreeSet<_> = all.iter().map(|entry| text(entry, "/image").to_owned()).collect();
        let mut others = BTreeSet::from([self.image.as_str()]);
        for deployment in items(&self.service_version, "/spec/install/spec/deployments") {
            for list in ["initContainers", "containers"] {
                let containers = items(deployment, &format!("/spec/template/spec/{list}")).iter();
                others.extend(containers.map(|container| text(container, "/image")));
            }
        }
        let others = others.into_iter().filter(|image| !known.contains(*image));
        all.extend(others.map(|image| json!({"name": "", "image": image})));
        all.sort_by_cached_key(|entry| text(entry, "/image").to_owned());
        all
    }
}

fn property(kind: &str, value: Value) -> Value {
    json!({"type": kind, "value": value})
}

fn kind_property(property_type: &str, group: &str, version: &str, kind: &str) -> Value {
    property(property_type, json!({"group": group, "version": version, "kind": kind}))
}

/// Returns the kinds that a bundle brings.
fn provided(objects: &[Value], csv: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    for definition in objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition") {
        let (group, kind) = (text(definition, "/spec/group"), text(definition, "/spec/names/kind"));
        let versions = items(definition, "/spec/versions").iter();
        all.extend(versions.map(|version| kind_property("olm.gvk", group, text(version, "/name"), kind)));
    }
    all.extend(items(csv, "/spec/apiservicedefinitions/owned").iter().map(|entry| served("olm.gvk", entry)));
    all
}

/// Returns the kinds that an operator needs.
fn required(csv: &Value) -> Vec<Value> {
    const REQUIRED: &str = "olm.gvk.required";
    let definitions = items(csv, "/spec/customresourcedefinitions/required").iter().map(|entry| {
        let group = text(entry, "/name").split_once('.').map_or("", |(_, group)| group);
        kind_property(REQUIRED, group, text(entry, "/version"), text(entry, "/kind"))
    });
    let services = items(csv, "/spec/apiservicedefinitions/required").iter().map(|entry| served(REQUIRED, entry));
    definitions.chain(services).collect()
}

/// Returns the property of a kind of another API server.
fn served(property_type: &str, entry: &Value) -> Value {
    kind_property(property_type, text(entry, "/group"), text(entry, "/version"), text(entry, "/kind"))
}

/// Returns the properties for the dependencies of a bundle.
fn dependencies(document: &Value) -> Vec<Value> {
    let all = items(document, "/dependencies").iter().map(|dependency| {
        let value = &dependency["value"];
        match text(dependency, "/type") {
            "olm.package" => {
                let value = json!({"packageName": value["packageName"], "versionRange": value["version"]});
                property("olm.package.required", value)
            }
            "olm.gvk" => property("olm.gvk.required", value.clone()),
            _ => dependency.clone(),
        }
    });
    all.collect()
}

/// Returns the first document of a file, or null.
fn document(files: &BTreeMap<String, String>, file: &str) -> Result<Value, CatalogError> {
    let Some(content) = files.get(file) else { return Ok(Value::Null) };
    Ok(read(file, content)?.into_iter().next().unwrap_or_default())
}

fn read(file: &str, content: &str) -> Result<Vec<Value>, CatalogError> {
    yaml::read(content).map_err(|source| CatalogError::Yaml { file: file.into(), source })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const IMAGE: &str = "example.com/me/cow-bundle:v1";

    /// Returns the files of a bundle with a kind.
    pub(in crate::olm::catalog) fn files() -> BTreeMap<String, String> {
        let csv = "\
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: cow.v0.2.0
  annotations: {alm-examples: '[]', capabilities: Basic Install}
spec:
  displayName: Cow
  version: 0.2.0
  installModes:
  - {type: OwnNamespace, supported: true}
  - {type: AllNamespaces, supported: false}
  customresourcedefinitions:
    owned: [{name: cows.barn.example.com, kind: Cow, version: v1}]
    required: [{name: fields.farm.example.com, kind: Field, version: v2}]
  relatedImages: [{name: grass, image: example.com/grass:v1}]
  install:
    strategy: deployment
    spec:
      deployments:
      - name: cow
        spec: {template: {spec: {containers: [{name: manager, image: example.com/cow:v2}, {name: eats, image: example.com/grass:v1}]}}}
";
        let definition = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: cows.barn.example.com}
spec: {group: barn.example.com, names: {kind: Cow}, versions: [{name: v1}, {name: v1beta1}]}
";
        let annotations = "\
annotations:
  operators.operatorframework.io.bundle.package.v1: cow
  operators.operatorframework.io.bundle.channels.v1: beta,stable
";
        let dependencies = "dependencies:\n- {type: olm.package, value: {packageName: hay, version: '>1.0.0'}}\n- {type: olm.gvk, value: {group: a.b, version: v1, kind: Milk}}\n";
        [
            ("manifests/cow.clusterserviceversion.yaml", csv),
            ("manifests/barn.example.com_cows.yaml", definition),
            (METADATA, annotations),
            ("metadata/dependencies.yaml", dependencies),
            ("metadata/properties.yaml", "properties: [{type: olm.maxOpenShiftVersion, value: '4.20'}]\n"),
        ]
        .map(|(path, text)| (path.to_owned(), text.to_owned()))
        .into()
    }

    /// Parses a catalog, and checks it by the rules of the published format.
    fn checked(catalog: &str) -> [Value; 3] {
        let documents: Vec<Value> = catalog.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [package, channel, bundle] = documents.try_into().unwrap();
        assert_eq!(
            [&package["schema"], &channel["schema"], &bundle["schema"]],
            ["olm.package", "olm.channel", "olm.bundle"]
        );
        assert_eq!((&package["name"], &package["name"]), (&channel["package"], &bundle["package"]));
        assert_eq!(package["defaultChannel"], channel["name"]);
        let entries = items(&channel, "/entries");
        assert_eq!((entries.len(), &entries[0]["name"]), (1, &bundle["name"]));
        assert_ne!(entries[0]["replaces"], bundle["name"]);
        assert!(!text(&bundle, "/image").is_empty());
        let properties = items(&bundle, "/properties");
        assert!(properties.iter().all(|property| !text(property, "/type").is_empty() && !property["value"].is_null()));
        let packages: Vec<_> = properties.iter().filter(|property| property["type"] == "olm.package").collect();
        assert_eq!((packages.len(), &packages[0]["value"]["packageName"]), (1, &package["name"]));
        assert!(!text(packages[0], "/value/version").is_empty());
        [package, channel, bundle]
    }

    #[test]
    fn a_catalog_lists_the_bundle_with_its_properties() {
        let bundle = CatalogBundle::read(&files(), IMAGE).unwrap();
        assert_eq!((bundle.name(), bundle.package()), ("cow.v0.2.0", "cow"));
        assert_eq!(
            (bundle.channels(), bundle.install_modes()),
            (&["beta".to_owned(), "stable".to_owned()][..], vec!["OwnNamespace"])
        );
        let [package, channel, entry] = checked(&bundle.catalog("beta", None).unwrap());
        assert_eq!(package, json!({"schema": "olm.package", "name": "cow", "defaultChannel": "beta"}));
        assert_eq!(channel["entries"], json!([{"name": "cow.v0.2.0"}]));
        assert_eq!((&entry["image"], &entry["name"]), (&json!(IMAGE), &json!("cow.v0.2.0")));
        let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
        let properties = items(&entry, "/properties");
        let (metadata, others) = properties.split_last().unwrap();
        assert_eq!(
            json!(others),
            json!([
                {"type": "olm.gvk", "value": kind("barn.example.com", "v1", "Cow")},
                {"type": "olm.gvk", "value": kind("barn.example.com", "v1beta1", "Cow")},
                {"type": "olm.gvk.required", "value": kind("a.b", "v1", "Milk")},
                {"type": "olm.gvk.required", "value": kind("farm.example.com", "v2", "Field")},
                {"type": "olm.maxOpenShiftVersion", "value": "4.20"},
                {"type": "olm.package", "value": {"packageName": "cow", "version": "0.2.0"}},
                {"type": "olm.package.required", "value": {"packageName": "hay", "versionRange": ">1.0.0"}},
            ])
        );
        let value = &metadata["value"];
        assert_eq!((&metadata["type"], &value["displayName"]), (&json!("olm.csv.metadata"), &json!("Cow")));
        assert_eq!(value["crdDescriptions"]["owned"][0]["kind"], "Cow");
        assert_eq!(value["annotations"]["alm-examples"], "[]");
        assert!(value.get("install").is_none() && value.get("keywords").is_none());
        let images: Vec<_> = items(&entry, "/relatedImages").iter().map(|entry| text(entry, "/image")).collect();
        assert_eq!(images, ["example.com/cow:v2", "example.com/grass:v1", IMAGE]);
    }

    #[test]
    fn an_entry_replaces_what_is_installed() {
        let bundle = CatalogBundle::read(&files(), IMAGE).unwrap();
        let [_, channel, _] = checked(&bundle.catalog("stable", Some("cow.v0.1.0")).unwrap());
        assert_eq!(channel["entries"], json!([{"name": "cow.v0.2.0", "replaces": "cow.v0.1.0"}]));
    }

    #[test]
    fn examples_are_left_out_if_the_catalog_is_too_large() {
        let mut files = files();
        let csv = files.get_mut("manifests/cow.clusterserviceversion.yaml").unwrap();
        *csv = csv.replace("'[]'", &format!("'{}'", "a".repeat(LONGEST)));
        let bundle = CatalogBundle::read(&files, IMAGE).unwrap();
        let [_, _, entry] = checked(&bundle.catalog("beta", None).unwrap());
        let metadata = &items(&entry, "/properties").last().unwrap()["value"];
        assert_eq!(metadata["annotations"], json!({"capabilities": "Basic Install"}));

        let csv = files.get_mut("manifests/cow.clusterserviceversion.yaml").unwrap();
        *csv = csv.replace("displayName: Cow", &format!("displayName: {}", "a".repeat(LONGEST)));
        let error = CatalogBundle::read(&files, IMAGE).unwrap().catalog("beta", None).unwrap_err().to_string();
        assert!(error.starts_with("the catalog of cow.v0.2.0 has 10") && error.contains("shorten"), "{error}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let without = |path: &str| {
            let mut files = files();
            files.remove(path);
            CatalogBundle::read(&files, IMAGE).unwrap_err().to_string()
        };
        assert!(without(METADATA).contains("has no operators.operatorframework.io.bundle.package.v1"));
        assert!(without("manifests/cow.clusterserviceversion.yaml").contains("exactly one ClusterServiceVersion"));
        let mut files = files();
        files.insert("manifests/a.yaml".into(), "a: [".into());
        assert!(CatalogBundle::read(&files, IMAGE).unwrap_err().to_string().starts_with("manifests/a.yaml: "));
    }
}
