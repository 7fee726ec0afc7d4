//! `/scale`: the number of replicas of any kind that has one, as a `Scale` object.

use std::sync::Arc;

use http::{Method, StatusCode};
use kubewright_apimachinery::{
    path::JsonPath,
    selector::LabelSelector,
    status::{Cause, Status},
};
use serde_json::{Value, json};

use super::{
    call::Call,
    decode::Decoded,
    edit::Edit,
    lifecycle::DecodedBody,
    part::Part,
    patch::{Patch, PatchType},
    present,
    query::WriteOptions,
};
use crate::{
    codec,
    group_version::group_version,
    managed_fields::Manager,
    meta,
    object_type::ObjectType,
    registry::{Resource, Scale, builtin::scale_columns},
    response::{self, Representation, Response},
    table,
};

/// The group, version and kind of a scale.
const SCALE: (&str, &str, &str) = ("autoscaling", "v1", "Scale");

/// Reads or changes the scale of an object.
pub(super) async fn scale(call: &Call, paths: &Scale) -> Result<Response, Status> {
    let path = |text: &str| JsonPath::parse(text).map_err(Status::internal);
    let scaler = Scaler { call, paths, spec: path(&paths.spec_replicas)?, status: path(&paths.status_replicas)? };
    match call.parts.method {
        Method::GET | Method::HEAD => scaler.respond(&call.load(call.present()?).await?.value()),
        Method::PUT => scaler.update().await,
        Method::PATCH => scaler.patch().await,
        _ => Err(Status::method_not_allowed()),
    }
}

struct Scaler<'a> {
    call: &'a Call,
    paths: &'a Scale,
    spec: JsonPath,
    status: JsonPath,
}

impl Scaler<'_> {
    async fn update(&self) -> Result<Response, Status> {
        let call = self.call;
        let options = WriteOptions::parse(&call.query, "UpdateOptions")?;
        let DecodedBody { object: mut sent, warnings } = call.body_of_kind(SCALE, options.field_validation)?;
        call.check_name_and_namespace(&mut sent)?;
        let name = call.manager_name(&options);
        self.edit(&options, &call.manager(&name, "scale"), |scale| {
            call.check_uid(scale, &sent)?;
            Ok(DecodedBody { object: sent.clone(), warnings: warnings.clone() })
        })
        .await
    }

    async fn patch(&self) -> Result<Response, Status> {
        let patch = Patch::parse(self.call)?;
        let manager = patch.manager(self.call, "scale");
        let edit = |scale: &Value| {
            // A scale has no lists, so strategic merge patch and merge patch are equivalent. An apply owns the field of
            // the object.
            let kind = match patch.kind {
                PatchType::Strategic | PatchType::Apply => PatchType::Merge,
                kind => kind,
            };
            let value = kind.perform(&self.call.resource, &manager, scale, &patch.decoded.value)?;
            let decoded = Decoded { value, duplicates: patch.decoded.duplicates.clone() };
            let typed = self.call.typed(SCALE, decoded, patch.options.field_validation);
            typed.map_err(|status| patch.refused(&self.call.resource, &manager, scale, SCALE.2, status))
        };
        self.edit(&patch.options, &manager, edit).await
    }

    async fn edit(
        &self,
        options: &WriteOptions,
        manager: &Manager<'_>,
        desired: impl Fn(&Value) -> Result<DecodedBody, Status> + Sync,
    ) -> Result<Response, Status> {
        let edit = ScaleEdit { scaler: self, manager, desired };
        let edited = self.call.edit(&edit, options, "scale").await?;
        let mut response = self.respond(&edited.stored.value())?;
        response::add_warnings(&mut response, &edited.warnings);
        Ok(response)
    }

    fn respond(&self, stored: &Arc<Value>) -> Result<Response, Status> {
        let call = self.call;
        let mut scale = self.view(&codec::to_served(&call.resource, stored))?;
        if let Some(ty) = ObjectType::of_object(&scale) {
            ty.decode(&mut scale).map_err(Status::internal)?;
            ty.complete(&mut scale);
        }
        let document = match call.accept.representation {
            Representation::Whole => scale,
            Representation::Metadata => present::metadata(call.accept.meta_version, &scale),
            Representation::MetadataList => return Err(present::no_list(&call.resource)),
            Representation::Table => {
                let resource = Resource { columns: scale_columns(), ..(*call.resource).clone() };
                let version = json!({"resourceVersion": meta::text(&scale, "resourceVersion")});
                table::render(&resource, [&scale], &version, call.table_options(true)?)
            }
        };
        Ok(response::value(StatusCode::OK, call.accept.encoding, &document))
    }

    /// Returns the scale of an object.
    fn view(&self, object: &Value) -> Result<Value, Status> {
        let metadata = &object["metadata"];
        let mut kept = serde_json::Map::new();
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = metadata.get(field) {
                kept.insert(field.into(), value.clone());
            }
        }
        let number = |path: &JsonPath| path.first(object).cloned().unwrap_or(json!(0));
        let mut status = json!({"replicas": number(&self.status)});
        if let Some(selector) = self.selector(object)? {
            status["selector"] = selector.into();
        }
        Ok(json!({
            "kind": "Scale", "apiVersion": group_version("autoscaling", "v1"), "metadata": kept,
            "spec": {"replicas": number(&self.spec)}, "status": status,
        }))
    }

    /// Returns the selector as text, regardless of its form in the object.
    fn selector(&self, object: &Value) -> Result<Option<String>, Status> {
        let Some(path) = &self.paths.selector else { return Ok(None) };
        let path = JsonPath::parse(path).map_err(Status::internal)?;
        Ok(match path.first(object) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(selector @ Value::Object(fields)) => {
                let labels = json!({"matchLabels": selector});
                // The selector of a ReplicationController is a plain map.
                let structured = fields.contains_key("matchLabels") || fields.contains_key("matchExpressions");
                let parsed = LabelSelector::from_object(if structured { selector } else { &labels });
                Some(parsed.map_err(Status::internal)?.to_string())
            }
            _ => None,
        })
    }
}

/// A change of an object through its scale.
struct ScaleEdit<'a, F> {
    scaler: &'a Scaler<'a>,
    manager: &'a Manager<'a>,
    desired: F,
}

impl<F: Fn(&Value) -> Result<DecodedBody, Status> + Sync> Edit for ScaleEdit<'_, F> {
    fn desired(&self, served: &Value) -> Result<DecodedBody, Status> {
        let mut scale = self.scaler.view(served)?;
        // Patches see who owns the number of replicas.
        meta::set(&mut scale, "managedFields", owners(&self.scaler.paths.spec_replicas, served));
        let mut body = (self.desired)(&scale)?;
        meta::set(&mut body.object, "managedFields", None);
        if let Some(ty) = ObjectType::of(SCALE.0, SCALE.1, SCALE.2) {
            ty.complete(&mut body.object);
        }
        Ok(body)
    }

    async fn prepare(&self, old: &Value, served: &Value, desired: Value) -> Result<Value, Status> {
        let Scaler { call, spec, .. } = self.scaler;
        let replicas = replicas(&desired, call.resource.schema.custom)?;
        let object = if self.manager.applies {
            let mut config = json!({"metadata": {"name": call.name}});
            codec::set_type(&mut config, &call.resource.group, &call.resource.version, &call.resource.kind);
            spec.set(&mut config, replicas).map_err(Status::internal)?;
            self.manager.apply(&call.resource, Some(served), &config)?
        } else {
            let mut object = served.clone();
            let version = meta::text(&desired, "resourceVersion");
            if !version.is_empty() {
                meta::set(&mut object, "resourceVersion", Some(version.into()));
            }
            spec.set(&mut object, replicas).map_err(Status::internal)?;
            object
        };
        let object = call.complete(Some(served), object, self.manager);
        call.prepare_update(Part::Main, old, served, object).await
    }

    fn view(&self, object: Arc<Value>) -> Result<Arc<Value>, Status> {
        self.scaler.view(&object).map(Arc::new)
    }

    fn kind(&self) -> Option<(String, String, String)> {
        Some(("autoscaling".into(), "v1".into(), "Scale".into()))
    }
}

/// Returns the managed fields of a scale: the owners of the number of replicas of an object, at a path such as
/// `.spec.replicas`.
fn owners(path: &str, object: &Value) -> Option<Value> {
    let pointer: String = path.trim_start_matches('.').split('.').map(|step| format!("/f:{step}")).collect();
    let owners = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let owners: Vec<Value> = owners
        .filter(|owner| owner["fieldsV1"].pointer(&pointer).is_some())
        .map(|owner| {
            let mut owner = owner.clone();
            owner["apiVersion"] = group_version(SCALE.0, SCALE.1).into();
            owner["fieldsV1"] = json!({"f:spec": {"f:replicas": {}}});
            owner
        })
        .collect();
    (!owners.is_empty()).then(|| owners.into())
}

/// Returns the number of replicas of a scale. That of a custom object is checked with the object.
fn replicas(scale: &Value, custom: bool) -> Result<Value, Status> {
    let refuse = |why: &str, value: &Value| {
        let cause = Cause::invalid("spec.replicas", value, why);
        let name = meta::text(scale, "name");
        Err(Status::invalid("autoscaling", "Scale", name, vec![cause]))
    };
    if !scale.is_object() || !matches!(scale["kind"].as_str(), None | Some("" | "Scale")) {
        return Err(Status::bad_request("the object provided is unrecognized (must be of type Scale)"));
    }
    match &scale["spec"]["replicas"] {
        Value::Null => Ok(json!(0)),
        value => match value.as_i64() {
            Some(0..=2_147_483_647) => Ok(value.clone()),
            Some(_) if custom => Ok(value.clone()),
            Some(_) => refuse("must be greater than or equal to 0", value),
            None => refuse("must be a whole number", value),
        },
    }
}
