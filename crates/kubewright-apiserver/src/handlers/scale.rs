//! `/scale`: the number of replicas of anything that has one, in one form.

use std::sync::Arc;

use http::{Method, StatusCode};
use kubewright_apimachinery::{
    path::JsonPath,
    selector::LabelSelector,
    status::{Cause, Status},
};
use serde_json::{Value, json};

use super::{
    Call,
    admission::Edit,
    convert,
    decode::{self, Format},
    lifecycle::Incoming,
    method_not_allowed,
    patch::{Patch, PatchType},
    query::WriteOptions,
    update::Part,
};
use crate::{
    discovery::group_version,
    meta,
    ownership::Owner,
    registry::Scale,
    respond::{self, Answer},
};

/// Reads or changes the scale of an object.
pub(super) async fn scale(call: &Call, paths: &Scale) -> Result<Answer, Status> {
    let path = |text: &str| JsonPath::parse(text).map_err(Status::internal);
    let scaler = Scaler { call, paths, spec: path(&paths.spec_replicas)?, status: path(&paths.status_replicas)? };
    match call.parts.method {
        Method::GET | Method::HEAD => scaler.answer(&call.load(call.present()?).await?.value()),
        Method::PUT => scaler.update().await,
        Method::PATCH => scaler.patch().await,
        _ => Err(method_not_allowed()),
    }
}

struct Scaler<'a> {
    call: &'a Call,
    paths: &'a Scale,
    spec: JsonPath,
    status: JsonPath,
}

impl Scaler<'_> {
    async fn update(&self) -> Result<Answer, Status> {
        let call = self.call;
        let options = WriteOptions::parse(&call.query, "UpdateOptions")?;
        let sent = decode::decode(Format::of(&call.parts.headers)?, &call.body)?.value;
        let manager = call.manager(&options);
        let owner = call.owner(&manager, "scale");
        self.edit(&options, &owner, |_| Ok(sent.clone())).await
    }

    async fn patch(&self) -> Result<Answer, Status> {
        let patch = Patch::parse(self.call)?;
        let owner = patch.owner(self.call, "scale");
        let edit = |scale: &Value| {
            // A scale has no lists, so strategic merge and merge are one. An apply owns the number in the object itself.
            let kind = match patch.kind {
                PatchType::Strategic | PatchType::Apply => PatchType::Merge,
                kind => kind,
            };
            kind.perform(&self.call.resource, &owner, scale, &patch.decoded.value)
        };
        self.edit(&patch.options, &owner, edit).await
    }

    async fn edit(
        &self,
        options: &WriteOptions,
        owner: &Owner<'_>,
        ask: impl Fn(&Value) -> Result<Value, Status> + Sync,
    ) -> Result<Answer, Status> {
        let edit = ScaleEdit { scaler: self, owner, ask };
        let edited = self.call.edit(&edit, options, "scale").await?;
        let mut answer = self.answer(&edited.stored.value())?;
        respond::warn(&mut answer, &edited.warnings);
        Ok(answer)
    }

    fn answer(&self, stored: &Arc<Value>) -> Result<Answer, Status> {
        let object = convert::to_served(&self.call.resource, stored);
        Ok(respond::value(StatusCode::OK, self.call.accept.text, &self.show(&object)?))
    }

    /// The scale of an object.
    fn show(&self, object: &Value) -> Result<Value, Status> {
        let metadata = &object["metadata"];
        let mut shown = serde_json::Map::new();
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = metadata.get(field) {
                shown.insert(field.into(), value.clone());
            }
        }
        let number = |path: &JsonPath| path.first(object).cloned().unwrap_or(json!(0));
        let mut status = json!({"replicas": number(&self.status)});
        if let Some(selector) = self.selector(object)? {
            status["selector"] = selector.into();
        }
        Ok(json!({
            "kind": "Scale", "apiVersion": group_version("autoscaling", "v1"), "metadata": shown,
            "spec": {"replicas": number(&self.spec)}, "status": status,
        }))
    }

    /// The selector as text, from whatever form it has in the object.
    fn selector(&self, object: &Value) -> Result<Option<String>, Status> {
        let Some(path) = &self.paths.selector else { return Ok(None) };
        let path = JsonPath::parse(path).map_err(Status::internal)?;
        Ok(match path.first(object) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(selector @ Value::Object(fields)) => {
                let labels = json!({"matchLabels": selector});
                // A ReplicationController's selector is a plain map.
                let known = fields.contains_key("matchLabels") || fields.contains_key("matchExpressions");
                let parsed = LabelSelector::from_object(if known { selector } else { &labels });
                Some(parsed.map_err(Status::internal)?.to_string())
            }
            _ => None,
        })
    }
}

/// A change of an object by way of its scale.
struct ScaleEdit<'a, F> {
    scaler: &'a Scaler<'a>,
    owner: &'a Owner<'a>,
    ask: F,
}

impl<F: Fn(&Value) -> Result<Value, Status> + Sync> Edit for ScaleEdit<'_, F> {
    fn ask(&self, served: &Value) -> Result<Incoming, Status> {
        let object = (self.ask)(&self.scaler.show(served)?)?;
        Ok(Incoming { object, warnings: Vec::new() })
    }

    async fn make(&self, old: &Value, served: &Value, wanted: Value) -> Result<Value, Status> {
        let Scaler { call, spec, .. } = self.scaler;
        let replicas = replicas(&wanted)?;
        let object = if self.owner.applies {
            let mut config = json!({"metadata": {"name": call.name}});
            convert::set_type(&mut config, &call.resource.group, &call.resource.version, &call.resource.kind);
            spec.set(&mut config, replicas).map_err(Status::internal)?;
            self.owner.apply(&call.resource, Some(served), &config)?
        } else {
            let mut object = served.clone();
            for field in ["uid", "resourceVersion"] {
                let sent = meta::text(&wanted, field);
                if !sent.is_empty() {
                    meta::set(&mut object, field, Some(sent.into()));
                }
            }
            spec.set(&mut object, replicas).map_err(Status::internal)?;
            object
        };
        call.prepare_update(Part::Main, old, served, object, self.owner).await
    }

    fn show(&self, object: Arc<Value>) -> Result<Arc<Value>, Status> {
        self.scaler.show(&object).map(Arc::new)
    }

    fn exchanges(&self) -> Option<(String, String, String)> {
        Some(("autoscaling".into(), "v1".into(), "Scale".into()))
    }
}

/// The number that a sent scale asks for.
fn replicas(scale: &Value) -> Result<Value, Status> {
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
            Some(_) => refuse("must be greater than or equal to 0", value),
            None => refuse("must be a whole number", value),
        },
    }
}
