//! The rules of custom kinds.

use kubewright_apimachinery::{path::JsonPath, status::Cause};
use serde_json::Value;

use crate::registry::{Scale, Strategy};

/// The strategy of a custom kind.
#[derive(Debug)]
pub(super) struct CustomStrategy {
    /// True if the definition is being deleted.
    pub(super) terminating: bool,
    /// The paths of the numbers of replicas.
    pub(super) scale: Option<Scale>,
}

impl Strategy for CustomStrategy {
    fn admit(&self, old: Option<&Value>, _object: &mut Value) -> Result<(), String> {
        if self.terminating && old.is_none() {
            return Err("create not allowed while custom resource definition is terminating".to_owned());
        }
        Ok(())
    }

    /// Checks the numbers of replicas, whatever the schema says.
    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let Some(scale) = &self.scale else { return Vec::new() };
        let check = |text: &str| {
            let number = JsonPath::parse(text).ok()?.first(new)?.as_i64()?;
            let why = match number {
                ..0 => "should be a non-negative integer",
                0..=2_147_483_647 => return None,
                _ => "should be less than or equal to 2147483647",
            };
            Some(Cause::invalid(text, &number.into(), why))
        };
        [&scale.spec_replicas, &scale.status_replicas].into_iter().filter_map(|path| check(path)).collect()
    }
}
