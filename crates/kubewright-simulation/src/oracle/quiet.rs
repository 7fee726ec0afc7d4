//! Writes in a world at rest.

use super::{Oracle, Seen};
use crate::history::Request;

/// Finds writes, other than those of leases, after the world has come to rest.
#[derive(Default)]
pub(super) struct Quiet {
    is_at_rest: bool,
}

impl Oracle for Quiet {
    fn name(&self) -> &'static str {
        "quiet"
    }

    fn request(&mut self, request: &Request, _: &Seen<'_>) -> Vec<String> {
        if !self.is_at_rest || request.write.is_none() {
            return Vec::new();
        }
        vec![format!(
            "nothing happens, and the operator writes: {} {} {}",
            request.verb, request.resource, request.object
        )]
    }

    fn at_rest(&mut self, _: &Seen<'_>) -> Vec<String> {
        self.is_at_rest = true;
        Vec::new()
    }
}
