//! The rules of custom kinds.

use serde_json::Value;

use crate::registry::Strategy;

/// The strategy of a custom kind.
#[derive(Debug)]
pub(super) struct CustomStrategy {
    /// True if the definition is being deleted.
    pub(super) terminating: bool,
}

impl Strategy for CustomStrategy {
    fn admit(&self, old: Option<&Value>, _object: &mut Value) -> Result<(), String> {
        if self.terminating && old.is_none() {
            return Err("create not allowed while custom resource definition is terminating".to_owned());
        }
        Ok(())
    }
}
