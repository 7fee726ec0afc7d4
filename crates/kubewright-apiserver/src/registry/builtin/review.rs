//! Kinds that are questions: who am I, whose token is this, may someone do something
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access>).

use kubewright_apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use super::fields::{has, list, text};
use crate::{
    auth::{Access, UserInfo},
    registry::Strategy,
};

/// Who is meant by an access review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// Who asks.
    Asker,
    /// Who is named in the question.
    Named,
    /// Who is named in the question, within the question's namespace.
    Local,
}

/// `SelfSubjectAccessReview`, `SubjectAccessReview` and `LocalSubjectAccessReview`: may someone do this?
#[derive(Debug)]
pub(super) struct AccessReview(pub(super) Subject);

impl AccessReview {
    fn causes(&self, question: &Value) -> Vec<Cause> {
        let (resource, path) = ("spec.resourceAttributes", "spec.nonResourceAttributes");
        let value = json!(null);
        let mut causes = match (has(question, "/spec/resourceAttributes"), has(question, "/spec/nonResourceAttributes"))
        {
            (true, true) => {
                let why = "cannot be specified in combination with resourceAttributes";
                vec![Cause::invalid(path, &value, why)]
            }
            (false, false) => {
                let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
                vec![Cause::invalid(resource, &value, why)]
            }
            (false, true) if self.0 == Subject::Local => {
                vec![Cause::invalid(path, &value, "disallowed on this kind of request")]
            }
            _ => Vec::new(),
        };
        if self.0 != Subject::Asker
            && text(question, "/spec/user").is_empty()
            && list(question, "/spec/groups").is_empty()
        {
            causes.push(Cause::invalid("spec.user", &json!(""), "at least one of user or group must be specified"));
        }
        let namespace = text(question, "/spec/resourceAttributes/namespace");
        if self.0 == Subject::Local && namespace != text(question, "/metadata/namespace") {
            let field = "spec.resourceAttributes.namespace";
            causes.push(Cause::invalid(field, &json!(namespace), "must match metadata.namespace"));
        }
        causes
    }
}

impl Strategy for AccessReview {
    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        self.causes(new)
    }

    fn answer(&self, question: &Value, access: &Access<'_>) -> Option<Result<Value, Status>> {
        let groups = list(question, "/spec/groups").iter().filter_map(Value::as_str).map(String::from);
        let named = || UserInfo { name: text(question, "/spec/user").into(), groups: groups.collect() };
        let allowed = match self.0 {
            Subject::Asker => access.allows(access.user()),
            Subject::Named | Subject::Local => access.allows(&named()),
        };
        Some(Ok(json!({"allowed": allowed})))
    }
}

/// `SelfSubjectRulesReview`: what may I do?
#[derive(Debug)]
pub(super) struct RulesReview;

impl Strategy for RulesReview {
    fn answer(&self, question: &Value, access: &Access<'_>) -> Option<Result<Value, Status>> {
        if text(question, "/spec/namespace").is_empty() {
            return Some(Err(Status::bad_request("no namespace on request")));
        }
        let status = if access.allows(access.user()) {
            json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            })
        } else {
            json!({"resourceRules": [], "nonResourceRules": [], "incomplete": false})
        };
        Some(Ok(status))
    }
}

/// `SelfSubjectReview`: who am I?
#[derive(Debug)]
pub(super) struct SelfReview;

impl Strategy for SelfReview {
    fn answer(&self, _question: &Value, access: &Access<'_>) -> Option<Result<Value, Status>> {
        Some(Ok(json!({"userInfo": user_info(access.user())})))
    }
}

/// `TokenReview`: whose token is this? A token is good for every audience.
#[derive(Debug)]
pub(super) struct TokenReview;

impl Strategy for TokenReview {
    fn answer(&self, question: &Value, access: &Access<'_>) -> Option<Result<Value, Status>> {
        let token = text(question, "/spec/token");
        if token.is_empty() {
            return Some(Err(Status::bad_request("token is required for TokenReview in authentication")));
        }
        Some(Ok(match access.bearer(token) {
            Some(user) => {
                let mut status = json!({"authenticated": true, "user": user_info(&user)});
                let audiences = list(question, "/spec/audiences");
                if !audiences.is_empty() {
                    status["audiences"] = audiences.into();
                }
                status
            }
            None => json!({"user": {}, "error": "the token is not known"}),
        }))
    }
}

fn user_info(user: &UserInfo) -> Value {
    json!({"username": user.name, "groups": user.groups})
}
