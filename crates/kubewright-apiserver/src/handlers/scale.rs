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
    Call, convert,
    decode::{self, Format},
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
pub(super) fn scale(call: &Call, paths: &Scale) -> Result<Answer, Status> {
    let path = |text: &str| JsonPath::parse(text).map_err(Status::internal);
    let scaler = Scaler { call, paths, spec: path(&paths.spec_replicas)?, status: path(&paths.status_replicas)? };
    match call.parts.method {
        Method::GET | Method::HEAD => {
            let stored = call.server.store.get(&call.resource.storage, &call.key()).ok_or_else(|| call.not_found())?;
            scaler.answer(&stored.value())
        }
        Method::PUT => scaler.update(),
        Method::PATCH => scaler.patch(),
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
    fn update(&self) -> Result<Answer, Status> {
        let call = self.call;
        let options = WriteOptions::parse(&call.query, "UpdateOptions")?;
        let sent = decode::decode(Format::of(&call.parts.headers)?, &call.body)?.value;
        let manager = call.manager(&options);
        let owner = call.owner(&manager, "scale");
        self.modify(options.dry_run, &owner, |_| Ok(sent.clone()))
    }

    fn patch(&self) -> Result<Answer, Status> {
        let patch = Patch::parse(self.call)?;
        let owner = patch.owner(self.call, "scale");
        if patch.kind == PatchType::Apply {
            return self.apply(&patch, &owner);
        }
        self.modify(patch.options.dry_run, &owner, |scale| {
            // A scale has no lists, so strategic merge and merge are one.
            let kind = if patch.kind == PatchType::Strategic { PatchType::Merge } else { patch.kind };
            kind.perform(&self.call.resource, &owner, scale, &patch.decoded.value)
        })
    }

    /// An apply owns the number of replicas in the object itself.
    fn apply(&self, patch: &Patch, owner: &Owner<'_>) -> Result<Answer, Status> {
        let call = self.call;
        let replicas = replicas(&patch.decoded.value)?;
        let mut config = json!({"metadata": {"name": call.name}});
        convert::set_type(&mut config, &call.resource.group, &call.resource.version, &call.resource.kind);
        self.spec.set(&mut config, replicas).map_err(Status::internal)?;
        let stored = call.modify(patch.options.dry_run, |old| {
            let old = old.ok_or_else(|| call.not_found())?;
            let served = convert::to_served(&call.resource, old);
            let object = owner.apply(&call.resource, Some(&served), &config)?;
            call.prepare_update(Part::Main, old, &served, object, owner)
        })?;
        self.answer(&stored.value())
    }

    fn modify(
        &self,
        dry_run: bool,
        owner: &Owner<'_>,
        change: impl Fn(&Value) -> Result<Value, Status>,
    ) -> Result<Answer, Status> {
        let call = self.call;
        let stored = call.modify(dry_run, |old| {
            let old = old.ok_or_else(|| call.not_found())?;
            let served = convert::to_served(&call.resource, old);
            let sent = change(&self.show(&served)?)?;
            let mut object = (*served).clone();
            for field in ["uid", "resourceVersion"] {
                let sent =
                    sent["metadata"].get(field).filter(|value| value.as_str().is_some_and(|text| !text.is_empty()));
                if let Some(value) = sent {
                    meta::set(&mut object, field, Some(value.clone()));
                }
            }
            self.spec.set(&mut object, replicas(&sent)?).map_err(Status::internal)?;
            call.prepare_update(Part::Main, old, &served, object, owner)
        })?;
        self.answer(&stored.value())
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
