//! The certificates that the webhook of a CRD is verified by.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use crate::{certificate_verifier::has_certificate, registry::builtin::validation::string};

/// Returns whether the certificates of the webhook that converts the objects of a CRD can be read, if there is one.
pub(super) fn has_readable_bundle(definition: &Value) -> bool {
    is_readable(string(&definition["spec"]["conversion"]["webhook"]["clientConfig"], "caBundle"))
}

/// Returns whether a bundle, in base64, contains a certificate. An empty one stands for those of the system.
pub(super) fn is_readable(bundle: &str) -> bool {
    bundle.is_empty() || STANDARD.decode(bundle).is_ok_and(|bundle| has_certificate(&bundle))
}
