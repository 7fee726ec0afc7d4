//! PATCH: JSON patch, merge patch, strategic merge patch, apply.

use std::mem;

use http::StatusCode;
use kubewright_apimachinery::{
    decode as machinery, go_format,
    patch::{self, PatchError, merge, strategic},
    status::{Cause, Status},
    types::json_type,
};
use serde_json::{Value, json};

use super::{
    call::Call,
    create,
    decode::{self, Decoded},
    edit::{Edited, MAX_ATTEMPTS, PartEdit},
    field_validation,
    lifecycle::DecodedBody,
    part::Part,
    query::{FieldValidation, WriteOptions},
    touched, type_meta,
};
use crate::{
    managed_fields::Manager, meta, object_type::ObjectType, registry::Resource, response::Response, schema_rules,
};

/// The types of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    fn of(call: &Call) -> Result<Self, Status> {
        const CUSTOM: &str = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        let custom = call.resource.schema.custom;
        match decode::media_type(&call.parts.headers).as_str() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if !custom => Ok(Self::Strategic),
            decode::APPLY => Ok(Self::Apply),
            _ if custom => Err(decode::unsupported(CUSTOM)),
            // The router refuses these, not the handler.
            _ => Err(Status::generic(415, "UnsupportedMediaType", "415: Unsupported Media Type")),
        }
    }

    /// Parses a patch.
    fn decode(self, body: &[u8]) -> Result<Decoded, Status> {
        let (begin, decoded) = match self {
            Self::Json | Self::Merge => ("error decoding patch: ", machinery::json(body)),
            Self::Strategic => ("", machinery::json(body)),
            Self::Apply => ("error decoding YAML: ", machinery::yaml(body)),
        };
        let mut decoded = decoded.map_err(|why| Status::bad_request(format!("{begin}{why}")))?;
        if self == Self::Strategic {
            machinery::untyped_numbers(&mut decoded.value);
        }
        let (is_expected, expected) = match self {
            Self::Json => (decoded.value.is_array(), "[]handlers.jsonPatchOp"),
            _ => (decoded.value.is_object(), "map[string]interface {}"),
        };
        if is_expected {
            return Ok(decoded);
        }
        if decoded.value.is_null() {
            return match self {
                Self::Apply | Self::Strategic => Ok(Decoded { value: json!({}), ..decoded }),
                Self::Json => Ok(Decoded { value: json!([]), ..decoded }),
                Self::Merge => Err(Status::bad_request("Invalid JSON Patch")),
            };
        }
        let begin = match self {
            Self::Apply => "error decoding YAML: error unmarshaling JSON: while decoding JSON: ",
            _ => begin,
        };
        let found = json_type(&decoded.value);
        Err(Status::bad_request(format!("{begin}json: cannot unmarshal {found} into Go value of type {expected}")))
    }

    /// Returns the error for a JSON patch that replaces the object with a list.
    fn not_an_object(list: &Value) -> Status {
        let why = schema_rules::not_an_object(list).unwrap_or_default();
        Status::invalid("", "", "", vec![Cause::invalid("patch", &list.to_string().into(), &why)])
    }

    /// Applies a patch to an object in served form.
    pub(super) fn perform(
        self,
        resource: &Resource,
        manager: &Manager<'_>,
        object: &Value,
        patch: &Value,
    ) -> Result<Value, Status> {
        match self {
            Self::Json => match patch::json::apply(object, patch).map_err(|error| error.to_status())? {
                object @ Value::Object(_) => Ok(object),
                list @ Value::Array(_) => Err(Self::not_an_object(&list)),
                _ => Err(PatchError::Rejected("the result is not an object".into()).to_status()),
            },
            Self::Merge => {
                let mut object = object.clone();
                merge::apply(&mut object, patch);
                Ok(object)
            }
            Self::Strategic => {
                let mut result =
                    strategic::apply(resource.schema.node(), object, patch).map_err(|error| error.to_status())?;
                keep_type(&mut result, object, patch);
                Ok(result)
            }
            Self::Apply => manager.apply(resource, Some(object), patch),
        }
    }
}

/// Ignores the kind and the version in a strategic merge patch: Kubernetes knows the type of the result already.
pub(super) fn keep_type(result: &mut Value, object: &Value, patch: &Value) {
    for field in ["kind", "apiVersion"] {
        if patch.get(field).is_some_and(|value| value.is_string() || value.is_null()) {
            result[field] = object[field].clone();
        }
    }
}

/// A patch and its options.
#[derive(Debug)]
pub(super) struct Patch {
    pub(super) kind: PatchType,
    pub(super) options: WriteOptions,
    pub(super) decoded: Decoded,
    manager: String,
}

impl Patch {
    pub(super) fn parse(call: &Call) -> Result<Self, Status> {
        let kind = PatchType::of(call)?;
        let options = WriteOptions::parse(&call.query, "PatchOptions")?;
        let cause = match kind {
            PatchType::Apply if options.field_manager.is_none() => {
                Some(Cause::required("fieldManager", "is required for apply patch"))
            }
            PatchType::Json | PatchType::Merge | PatchType::Strategic if options.force.is_some() => {
                Some(Cause::forbidden("force", "may not be specified for non-apply patch"))
            }
            _ => None,
        };
        if let Some(cause) = cause {
            return Err(Status::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]));
        }
        let mut decoded = kind.decode(&call.body)?;
        if kind == PatchType::Json {
            let duplicates = mem::take(&mut decoded.duplicates);
            decoded.duplicates = field_validation::of_operations(&decoded.value, duplicates, &call.body);
        }
        let manager = call.manager_name(&options);
        Ok(Self { kind, options, decoded, manager })
    }

    /// Refuses duplicate fields of a configuration, in strict validation. Kubernetes does so when it has been applied.
    fn check_duplicates(&self) -> Result<(), Status> {
        let strict = self.kind == PatchType::Apply && self.options.field_validation == FieldValidation::Strict;
        if !strict || self.decoded.duplicates.is_empty() {
            return Ok(());
        }
        let why = machinery::strict_errors(self.decoded.duplicates.clone()).join(", ");
        Err(Status::bad_request(format!("error strict decoding YAML: error converting YAML to JSON: {why}")))
    }

    /// Decodes and checks the result of the patch. `served` is the object before it, if there is one.
    fn receive(&self, call: &Call, served: Option<&Value>, value: Value) -> Result<DecodedBody, Status> {
        if let Some(served) = served {
            self.check_type(call, served, &value)?;
        }
        let decoded = Decoded { value, duplicates: self.decoded.duplicates.clone() };
        if self.kind != PatchType::Apply {
            return call.receive(decoded, self.options.field_validation);
        }
        // As in Kubernetes, what a configuration sets to null is validated, and fields that are pruned aren't reported:
        // one with a field that the schema doesn't declare was refused before.
        let config = &self.decoded.value;
        let mut read = call.read(decoded).map_err(|status| unconvertible(call, config, status))?;
        read.unknown.clear();
        call.accept(read, self.options.field_validation)
    }

    /// Checks that the kind and the version of a result are readable, which Kubernetes does before the rest of it.
    fn check_type(&self, call: &Call, served: &Value, result: &Value) -> Result<(), Status> {
        let custom = call.resource.schema.custom;
        let has_no_kind = || result["kind"].as_str().unwrap_or_default().is_empty();
        let why = match self.kind {
            PatchType::Apply => None,
            PatchType::Strategic => type_meta::unconvertible(&self.decoded.value).map(str::to_owned),
            PatchType::Json | PatchType::Merge => type_meta::unreadable(result)
                .or_else(|| (custom && has_no_kind()).then(|| format!("Object 'Kind' is missing in '{result}'"))),
        };
        if let Some(why) = why {
            return Err(self.invalid(served, result, &why));
        }
        let is_read_whole = matches!(self.kind, PatchType::Json | PatchType::Merge) && !custom;
        if is_read_whole && type_meta::version(result).is_empty() {
            // Kubernetes takes such an object for one of its internal version, whose metadata has other names.
            let name = &call.name;
            let why = format!("the name of the object ({name} based on URL) was undeterminable: name must be provided");
            return Err(Status::bad_request(why));
        }
        Ok(())
    }

    /// Returns the error for a result that can't be read, with what Kubernetes shows of it.
    fn invalid(&self, served: &Value, result: &Value, why: &str) -> Status {
        let shown = match self.kind {
            PatchType::Merge => touched::shown(served, result, &self.decoded.value),
            PatchType::Json => touched::shown(served, result, &touched::of_operations(&self.decoded.value)),
            PatchType::Strategic | PatchType::Apply => go_format::plain(&self.decoded.value),
        };
        Status::invalid("", "", "", vec![Cause::invalid("patch", &shown.into(), why)])
    }

    /// Returns the error for a patch whose result isn't an object of the kind.
    pub(super) fn refused(
        &self,
        resource: &Resource,
        manager: &Manager<'_>,
        served: &Value,
        kind: &str,
        status: Status,
    ) -> Status {
        let Some(why) = schema_rules::unreadable_reason(kind, &status) else { return status };
        let result = match self.kind {
            PatchType::Apply => return status,
            PatchType::Json | PatchType::Merge | PatchType::Strategic => {
                self.kind.perform(resource, manager, served, &self.decoded.value).unwrap_or_default()
            }
        };
        // Kubernetes decodes the result by its own kind before it turns out to be another one.
        let undecodable = ObjectType::of_object(&result).and_then(|ty| match self.kind {
            PatchType::Strategic => ty.unrestorable(&result),
            _ => ty.decode(&mut result.clone()).err(),
        });
        self.invalid(served, &result, undecodable.as_deref().unwrap_or(why))
    }

    /// Returns the field manager of the patch.
    pub(super) fn manager<'a>(&'a self, call: &'a Call, subresource: &'a str) -> Manager<'a> {
        Manager {
            name: &self.manager,
            subresource,
            applies: self.kind == PatchType::Apply,
            force: self.options.force == Some(true),
            now: call.state.clock.now(),
            conversions: &call.conversions,
        }
    }
}

/// Returns the error for a configuration whose result can't be read. Its types are correct as far as the schema
/// describes them, but not the syntax of a time, say.
fn unconvertible(call: &Call, config: &Value, status: Status) -> Status {
    let Resource { group, version, kind, .. } = &*call.resource;
    let Some(why) = schema_rules::unreadable_reason(kind, &status) else { return status };
    let kind = format!("{group}/{version}, Kind={kind}");
    let why = schema_rules::unstructured_reason(why);
    let [namespace, name] = ["namespace", "name"].map(|field| meta::text(config, field));
    Status::unknown(format!(
        "failed to convert new object ({namespace}/{name}; {kind}) to proper version: unable to convert unstructured \
         object to {kind}: {why}"
    ))
}

/// Patches an object. An apply creates it if it doesn't exist.
pub(super) async fn patch(call: &Call, part: Part) -> Result<Response, Status> {
    let patch = Patch::parse(call)?;
    let manager = patch.manager(call, part.subresource());
    let creates = match part {
        Part::Main => true,
        Part::Status => call.resource.lifecycle.created_by_status,
        Part::Approval | Part::Finalizers | Part::Other(_) => false,
    };
    let creates = creates && patch.kind == PatchType::Apply;
    let desired = |served: &Value| {
        let value = patch.kind.perform(&call.resource, &manager, served, &patch.decoded.value)?;
        patch.check_duplicates()?;
        patch
            .receive(call, Some(served), value)
            .map_err(|status| patch.refused(&call.resource, &manager, served, &call.resource.kind, status))
    };
    let edit = PartEdit { call, part, manager: &manager, desired };
    for _ in 0..MAX_ATTEMPTS {
        if creates && !call.exists() {
            match apply_new(call, &patch, &manager).await {
                // Another client created the object first, so the configuration is applied to it.
                Err(status) if status.reason == "AlreadyExists" => {}
                result => return result,
            }
        }
        match call.edit(&edit, &patch.options, part.subresource()).await {
            Ok(Edited { stored, warnings }) => return Ok(call.object(StatusCode::OK, &stored, &warnings)),
            // Another client deleted the object, so the configuration creates it again.
            Err(status) if creates && status.reason == "NotFound" && !call.exists() => {}
            Err(status) => return Err(status),
        }
    }
    Err(Status::stale(&call.resource.group, &call.resource.plural, &call.name))
}

/// Creates an object by applying a configuration.
async fn apply_new(call: &Call, patch: &Patch, manager: &Manager<'_>) -> Result<Response, Status> {
    call.authorize("create")?;
    let uid = meta::text(&patch.decoded.value, "uid");
    let object = manager.apply(&call.resource, None, &patch.decoded.value)?;
    patch.check_duplicates()?;
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(Status::conflict(&call.resource.group, &call.resource.plural, &call.name, &why));
    }
    let incoming = patch.receive(call, None, object)?;
    let options = WriteOptions { kind: "CreateOptions", ..patch.options.clone() };
    create::create_admitted(call, incoming, manager, &options).await
}
