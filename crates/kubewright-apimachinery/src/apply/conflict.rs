//! Conflicts: fields owned by another manager that an applied configuration would change.

use super::{
    fields::FieldSet,
    managed::{Entry, Operation},
};
use crate::status::{Cause, Details, Status};

/// The fields of one manager that an apply would change.
#[derive(Debug)]
pub(crate) struct Conflict {
    /// The manager as shown in errors: `"kubectl" with subresource "scale" using apps/v1`.
    manager: String,
    pub(crate) fields: FieldSet,
}

impl Conflict {
    pub(crate) fn new(entry: &Entry, fields: FieldSet) -> Self {
        let mut manager = format!("{:?}", entry.manager);
        if !entry.subresource.is_empty() {
            manager += &format!(" with subresource {:?}", entry.subresource);
        }
        if entry.operation == Operation::Update {
            manager += &format!(" using {}", entry.api_version);
        }
        Self { manager, fields }
    }
}

/// Returns the 409 that reports all conflicts.
pub(crate) fn status(mut conflicts: Vec<Conflict>) -> Status {
    conflicts.sort_by(|a, b| a.manager.cmp(&b.manager));
    let causes: Vec<_> = conflicts
        .iter()
        .flat_map(|conflict| {
            let message = format!("conflict with {}", conflict.manager);
            conflict.fields.paths().into_iter().map(move |path| Cause::new("FieldManagerConflict", path, &*message))
        })
        .collect();
    let message = match causes.as_slice() {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        many => {
            let list: Vec<_> = conflicts
                .iter()
                .map(|conflict| {
                    let paths: String = conflict.fields.paths().iter().map(|path| format!("\n- {path}")).collect();
                    format!("conflicts with {}:{paths}", conflict.manager)
                })
                .collect();
            format!("Apply failed with {} conflicts: {}", many.len(), list.join("\n"))
        }
    };
    Status { details: Some(Details { causes, ..Details::default() }.into()), ..Status::new(409, "Conflict", message) }
}
