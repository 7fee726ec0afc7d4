//! `/scale`: the number of replicas of any kind that has one, as a `Scale` object.

use std::sync::Arc;

use http::{Method, StatusCode};
use kubewright_apimachinery::{
    apply::{FieldSet, SCALE_VERSION, owners_after_scale, owners_in_scale},
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
    patch::{Patch, PatchType, keep_type},
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

/// What the scale of a custom object without a number of replicas has in its place while it is changed.
const UNSET: i32 = i32::MIN;

/// Reads or changes the scale of an object.
pub(super) async fn scale(call: &Call, paths: &Scale) -> Result<Response, Status> {
    let path = |text: &str| JsonPath::parse(text).map_err(Status::internal);
    let scaler = Scaler { call, paths, spec: path(&paths.spec_replicas)?, status: path(&paths.status_replicas)? };
    match call.parts.method {
        Method::GET | Method::HEAD => {
            let stored = call.load(call.present()?).await?.value();
            if call.resource.schema.custom && scaler.spec.first(&stored).is_none() {
                let path = &paths.spec_replicas;
                return Err(Status::internal(format!("the spec replicas field {path:?} does not exist")));
            }
            scaler.respond(&stored)
        }
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
            let value = match patch.kind {
                // A scale has no lists, so strategic merge patch and merge patch are equivalent.
                PatchType::Strategic => {
                    let sent = &patch.decoded.value;
                    let mut merged = PatchType::Merge.perform(&self.call.resource, &manager, scale, sent)?;
                    keep_type(&mut merged, scale, sent);
                    merged
                }
                PatchType::Apply if self.call.resource.schema.custom => {
                    manager.apply_to_custom_scale(scale, &patch.decoded.value)?
                }
                PatchType::Apply => manager.apply_to_scale(scale, &patch.decoded.value)?,
                kind => kind.perform(&self.call.resource, &manager, scale, &patch.decoded.value)?,
            };
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
        let scale = self.view(&codec::to_served(&call.resource, stored))?;
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
        let mut scale = json!({
            "kind": SCALE.2, "apiVersion": SCALE_VERSION, "metadata": kept, "spec": {"replicas": number(&self.spec)},
            "status": status,
        });
        if let Some(ty) = ObjectType::of_object(&scale) {
            ty.decode(&mut scale).map_err(Status::internal)?;
            ty.complete(&mut scale);
        }
        Ok(scale)
    }

    /// Returns the scale of an object, with the owners of the number of replicas.
    fn owned(&self, object: &Value) -> Result<Value, Status> {
        let mut scale = self.view(object)?;
        let owners = owners_in_scale(object["metadata"].get("managedFields"), &field_of(self.paths));
        meta::set(&mut scale, "managedFields", owners);
        Ok(scale)
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
        let Scaler { call, spec, .. } = self.scaler;
        let mut scale = self.scaler.owned(served)?;
        if call.resource.schema.custom && spec.first(served).is_none() {
            scale["spec"]["replicas"] = UNSET.into();
        }
        let mut body = (self.desired)(&scale)?;
        if let Some(ty) = ObjectType::of(SCALE.0, SCALE.1, SCALE.2) {
            ty.complete(&mut body.object);
        }
        body.object = self.manager.track_scale(&scale, body.object);
        Ok(body)
    }

    async fn prepare(&self, old: &Value, served: &Value, desired: Value) -> Result<Value, Status> {
        let Scaler { call, paths, spec, .. } = self.scaler;
        let replicas = replicas(&desired, call.resource.schema.custom)?;
        if call.resource.schema.custom && replicas == json!(UNSET) {
            let path = &paths.spec_replicas;
            return Err(Status::bad_request(format!("the spec replicas field {path:?} cannot be empty")));
        }
        let mut object = served.clone();
        let version = meta::text(&desired, "resourceVersion");
        if !version.is_empty() {
            meta::set(&mut object, "resourceVersion", Some(version.into()));
        }
        spec.set(&mut object, replicas).map_err(Status::internal)?;
        let [before, scale] = [served, &desired].map(|object| object["metadata"].get("managedFields"));
        let served_version = group_version(&call.resource.group, &call.resource.version);
        meta::set(&mut object, "managedFields", owners_after_scale(before, scale, &field_of(paths), &served_version));
        call.prepare_update(Part::Main, old, served, object).await
    }

    fn view(&self, object: Arc<Value>) -> Result<Arc<Value>, Status> {
        self.scaler.view(&object).map(Arc::new)
    }

    fn before(&self, served: Arc<Value>) -> Result<Arc<Value>, Status> {
        self.scaler.owned(&served).map(Arc::new)
    }

    fn kind(&self) -> Option<(String, String, String)> {
        Some(("autoscaling".into(), "v1".into(), "Scale".into()))
    }
}

/// Returns the field of an object that contains its number of replicas.
fn field_of(paths: &Scale) -> FieldSet {
    FieldSet::of([paths.spec_replicas.trim_start_matches('.')])
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
