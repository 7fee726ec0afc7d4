//! How the API server asks a webhook.

use std::{fmt, time::Duration};

use k8s_openapi::api::admissionregistration::v1::MatchCondition;
use kube::core::Selector;

/// What happens to a request when its webhook can't be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// It is refused.
    #[default]
    Fail,
    /// It is let through.
    Ignore,
}

impl fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        })
    }
}

/// How the API server asks a webhook: for [`Webhook::policies`](super::Webhook::policies). They go into its configuration, under the names of
/// <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>.
///
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// # use kubewright_runtime::webhook::{FailurePolicy, Webhook};
/// # fn example(webhook: Webhook<Pod>) -> Webhook<Pod> {
/// webhook.policies(|policies| {
///     policies.failure = FailurePolicy::Ignore;
///     policies.conditions.push(("no-system-pods".into(), "object.metadata.namespace != 'kube-system'".into()));
/// })
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policies {
    /// `failurePolicy`: what happens to the request if it can't be asked.
    pub failure: FailurePolicy,
    /// `timeoutSeconds`: how long it may take, in whole seconds from 1 to 30; 10 by default.
    pub timeout: Duration,
    /// `sideEffects`: whether it does something besides answering, though not on a dry run (`NoneOnDryRun`); by default it doesn't
    /// (`None`).
    pub has_side_effects: bool,
    /// `reinvocationPolicy`: whether a defaulter is asked again when another webhook has changed the object after it (`IfNeeded`).
    pub reinvoke: bool,
    /// `matchPolicy`: whether it is asked only about this very version of the kind (`Exact`), and not about others either, whose objects are
    /// converted for it.
    pub exact: bool,
    /// `namespaceSelector`: of which namespaces; by default of all.
    pub namespaces: Option<Selector>,
    /// `objectSelector`: with which labels; by default with any. Users can give their objects such labels, or not.
    pub objects: Option<Selector>,
    /// `matchConditions`: names, and CEL expressions that all have to hold for it to be asked.
    pub conditions: Vec<(String, String)>,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            failure: FailurePolicy::default(),
            timeout: Duration::from_secs(10),
            has_side_effects: false,
            reinvoke: false,
            exact: false,
            namespaces: None,
            objects: None,
            conditions: Vec::new(),
        }
    }
}

impl Policies {
    pub(super) fn side_effects(&self) -> &'static str {
        if self.has_side_effects { "NoneOnDryRun" } else { "None" }
    }

    pub(super) fn timeout_seconds(&self) -> i32 {
        i32::try_from(self.timeout.as_secs().clamp(1, 30)).unwrap_or(30)
    }

    pub(super) fn match_policy(&self) -> Option<String> {
        self.exact.then(|| "Exact".into())
    }

    pub(super) fn conditions(&self) -> Option<Vec<MatchCondition>> {
        let conditions = self.conditions.iter();
        let conditions =
            conditions.map(|(name, expression)| MatchCondition { name: name.clone(), expression: expression.clone() });
        (!self.conditions.is_empty()).then(|| conditions.collect())
    }
}
