//! The policies by which the API server calls a webhook.

use std::{fmt, time::Duration};

use k8s_openapi::api::admissionregistration::v1::MatchCondition;
use kube::core::Selector;

/// The handling of a request whose webhook can't be called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// The request is refused.
    #[default]
    Fail,
    /// The request is admitted.
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

/// The policies by which the API server calls a webhook, for [`Webhook::policies`](super::Webhook::policies). They are
/// fields of its configuration: see
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
    /// `failurePolicy`: the handling of a request if the webhook can't be called.
    pub failure: FailurePolicy,
    /// `timeoutSeconds`: the timeout, in whole seconds from 1 to 30. Default: 10 s.
    pub timeout: Duration,
    /// `sideEffects`: whether it has side effects, except on dry runs (`NoneOnDryRun`). Default: `None`.
    pub has_side_effects: bool,
    /// `reinvocationPolicy`: whether a defaulter is called again if another webhook changes the object after it
    /// (`IfNeeded`).
    pub reinvoke: bool,
    /// `matchPolicy`: whether it is called only for this version of the kind (`Exact`). Otherwise objects of other
    /// versions are converted for it.
    pub exact: bool,
    /// `namespaceSelector`: the namespaces of the objects. Default: all.
    pub namespaces: Option<Selector>,
    /// `objectSelector`: the labels of the objects. Default: any. Users choose the labels of their objects, so don't
    /// rely on it for security.
    pub objects: Option<Selector>,
    /// `matchConditions`: names and CEL expressions, all of which must hold.
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
