//! Attachments of volumes to nodes.

use kubewright_apimachinery::{name, status::Cause};
use serde_json::Value;

use super::{default_source, volume::validate_inline_volume};
use crate::{
    fields::{flag, text},
    registry::{
        Column, Strategy,
        builtin::{
            columns::{age, name as name_column, string, truth},
            pod::validate_csi_driver_name,
            validation::{
                Errors, IMMUTABLE, Path, entries, field, inclusive_range, optional_int, optional_string,
                string as text_field, validate_text,
            },
        },
    },
};

/// The greatest sum of the lengths of the keys and values of an attachment's metadata.
const MAX_METADATA: usize = 256 << 10;
/// The greatest length of the message about a failure.
const MAX_MESSAGE: usize = 1024;

/// The strategy of volume attachments.
#[derive(Debug)]
pub(in crate::registry::builtin) struct VolumeAttachmentStrategy;

impl Strategy for VolumeAttachmentStrategy {
    fn default(&self, object: &mut Value) {
        if let Some(inline) = object.pointer_mut("/spec/source/inlineVolumeSpec") {
            default_source(inline);
        }
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| {
            validate_attachment(new, errors);
            if old.is_some_and(|old| old["spec"] != new["spec"]) {
                errors.invalid(&Path::new("spec"), new["spec"].clone(), IMMUTABLE);
            }
        })
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }
}

fn validate_attachment(attachment: &Value, errors: &mut Errors) {
    let (spec, path) = (&attachment["spec"], Path::new("spec"));
    validate_csi_driver_name(text_field(spec, "attacher"), &path.child("attacher"), errors);
    let (source, at) = (&spec["source"], path.child("source"));
    let volume = optional_string(source, "persistentVolumeName");
    match (field(source, "inlineVolumeSpec"), volume) {
        (None, None) => {
            errors.required(&at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName");
        }
        (Some(_), Some(_)) => {
            errors.forbidden(&at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName");
        }
        (None, Some("")) => {
            errors.required(&at.child("persistentVolumeName"), "must specify non empty persistentVolumeName");
        }
        (None, Some(_)) => {}
        (Some(inline), None) => validate_inline_volume(inline, &at.child("inlineVolumeSpec"), errors),
    }
    validate_text(text_field(spec, "nodeName"), name::dns1123_subdomain, &path.child("nodeName"), errors);
    validate_attachment_status(&attachment["status"], errors);
    if let Some(volume) = volume {
        validate_text(volume, name::dns1123_subdomain, &at.child("persistentVolumeName"), errors);
    }
}

fn validate_attachment_status(status: &Value, errors: &mut Errors) {
    let path = Path::new("status");
    let sizes =
        entries(status, "attachmentMetadata").map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
    if sizes.sum::<usize>() > MAX_METADATA {
        errors.too_long(&path.child("attachmentMetadata"), MAX_METADATA);
    }
    for name in ["attachError", "detachError"] {
        let path = path.child(name);
        if text_field(&status[name], "message").len() > MAX_MESSAGE {
            // As in Kubernetes, the message states another limit.
            errors.too_long(&path.child("message"), MAX_METADATA);
        }
        if let Some(code) = optional_int(&status[name], "errorCode").filter(|code| *code < 0) {
            errors.invalid(&path.child("errorCode"), code, &inclusive_range(0, i64::from(i32::MAX)));
        }
    }
}

pub(in crate::registry::builtin) fn volume_attachment_columns() -> Vec<Column> {
    vec![
        name_column(|object, _| text(object, "/metadata/name").into()),
        string("Attacher", |object, _| text(object, "/spec/attacher").into()).of_format("name"),
        string("PV", |object, _| text(object, "/spec/source/persistentVolumeName").into()),
        string("Node", |object, _| text(object, "/spec/nodeName").into()),
        truth("Attached", |object, _| flag(object, "/status/attached").into()),
        age(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_attachment_has_one_source_and_never_changes() {
        let check = |old: Option<&Value>, new: &Value, expect: &[&str]| {
            let found: Vec<_> = VolumeAttachmentStrategy.validate(old, new).iter().map(ToString::to_string).collect();
            assert_eq!(found, expect);
        };
        let attachment = |source: Value| json!({"spec": {"attacher": "a", "nodeName": "n", "source": source}});
        let valid = attachment(json!({"persistentVolumeName": "v"}));
        check(None, &valid, &[]);
        let why = "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        check(None, &attachment(json!({})), &[why]);
        let mut attached = valid.clone();
        attached["status"] = json!({"attached": true, "attachError": {"errorCode": -1}});
        let code = "status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive";
        check(Some(&valid), &attached, &[code]);
    }
}
