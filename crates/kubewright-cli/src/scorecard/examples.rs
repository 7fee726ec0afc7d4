//! What an embedded API server says about the definitions and the examples of a bundle.

use http::Request;
use kube::Client;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::registry::builtin::check_definition;
use kubewright_cluster::Cluster;
use kubewright_manifests::{
    olm::scorecard::{Bundle, Trial},
    yaml,
};
use serde_json::{Value, json};

/// The namespace of examples without one.
const NAMESPACE: &str = "default";
/// What the API server says before it lists unknown fields.
const STRICT: &str = "strict decoding error: ";

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Checks the definitions by the rules of the API server.
pub(super) fn definitions(bundle: &Bundle) -> Trial {
    let mut trial = Trial::default();
    for definition in &bundle.definitions {
        let name = text(definition, "/metadata/name");
        trial.errors.extend(
            check_definition(definition).iter().map(|cause| format!("CustomResourceDefinition {name}: {cause}")),
        );
    }
    trial
}

/// Returns a definition whose objects can be created without the operator, which would convert them.
pub(super) fn without_conversion(definition: &Value) -> Value {
    let mut definition = definition.clone();
    if let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("conversion");
    }
    definition
}

/// Installs the definitions, and returns an error for each that is refused.
pub(super) async fn install(cluster: &Cluster, definitions: &[Value]) -> Vec<String> {
    let mut errors = Vec::new();
    for definition in definitions {
        let installed = match yaml::documents([&without_conversion(definition)]) {
            Ok(manifest) => cluster.apply_yaml(&manifest).await.map(drop).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let name = text(definition, "/metadata/name");
        errors.extend(installed.err().map(|error| format!("CustomResourceDefinition {name}: {error}")));
    }
    errors
}

/// Creates the examples of a bundle on a cluster of their own, as `kubectl create` does: fields that the schema doesn't
/// have are refused.
pub(super) async fn create(bundle: &Bundle, clock: &SharedClock) -> Trial {
    let mut trial = Trial::default();
    // The test itself reports examples that can't be read.
    let Ok(examples) = &bundle.examples else { return trial };
    let cluster = match Cluster::builder().clock(clock.clone()).api_only().start().await {
        Ok(cluster) => cluster,
        Err(error) => {
            trial.errors.push(format!("the embedded cluster for the examples did not start: {error}"));
            return trial;
        }
    };
    trial.errors = install(&cluster, &bundle.definitions).await;
    for (index, example) in examples.iter().enumerate() {
        let (kind, name) = (text(example, "/kind"), text(example, "/metadata/name"));
        let place = format!("alm-examples[{index}] ({kind} {name})");
        let Some(definition) = bundle.definition_of(example) else {
            trial.suggestions.push(format!(
                "{place}: was not created, since the bundle has no CustomResourceDefinition of {} {kind}",
                text(example, "/apiVersion")
            ));
            continue;
        };
        match create_one(&cluster.client(), definition, example).await {
            Ok(()) => trial.log.push(format!("Created {kind} {name} on an embedded cluster")),
            Err(errors) => trial.errors.extend(errors.iter().map(|error| format!("{place}: {error}"))),
        }
    }
    cluster.shutdown().await;
    trial
}

/// Creates an example, and returns what the API server refuses.
async fn create_one(client: &Client, definition: &Value, example: &Value) -> Result<(), Vec<String>> {
    let plural = text(definition, "/spec/names/plural");
    let collection = if text(definition, "/spec/scope") == "Namespaced" {
        let namespace = example.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or(NAMESPACE);
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        match post(client, "/api/v1/namespaces", &object).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            other => other.map(drop).map_err(|error| vec![format!("metadata.namespace: {error}")])?,
        }
        format!("namespaces/{namespace}/{plural}")
    } else {
        plural.to_owned()
    };
    let path = format!("/apis/{}/{collection}", text(example, "/apiVersion"));
    let error = match post(client, &format!("{path}?fieldValidation=Strict"), example).await {
        Ok(created) => return delete(client, &format!("{path}/{}", text(&created, "/metadata/name"))).await,
        Err(error) => error,
    };
    let mut errors = refusals(&error);
    // An unknown field hides the errors of the others.
    if let [only] = errors.as_slice()
        && let Some(at) = only.find(STRICT)
    {
        errors = vec![only[at + STRICT.len()..].to_owned()];
        let other = post(client, &format!("{path}?fieldValidation=Ignore"), example).await;
        errors.extend(other.err().iter().flat_map(refusals));
    }
    Err(errors)
}

/// Deletes an example, since others can be the same object in another version.
async fn delete(client: &Client, path: &str) -> Result<(), Vec<String>> {
    let request = Request::delete(path).body(Vec::new()).map_err(kube::Error::HttpError);
    let deleted = match request {
        Ok(request) => client.request::<Value>(request).await.map(drop),
        Err(error) => Err(error),
    };
    deleted.map_err(|error| vec![format!("can't be deleted: {error}")])
}

async fn post(client: &Client, path: &str, object: &Value) -> Result<Value, kube::Error> {
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request =
        Request::post(path).header("content-type", "application/json").body(body).map_err(kube::Error::HttpError)?;
    client.request::<Value>(request).await
}

/// Returns the reasons of a refusal, with their fields.
fn refusals(error: &kube::Error) -> Vec<String> {
    let kube::Error::Api(status) = error else { return vec![error.to_string()] };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let causes: Vec<_> = causes
        .filter(|cause| !cause.message.is_empty())
        .map(|cause| match cause.field.as_str() {
            "" | "<nil>" => cause.message.clone(),
            field => format!("{field}: {}", cause.message),
        })
        .collect();
    if causes.is_empty() { vec![status.message.clone()] } else { causes }
}
