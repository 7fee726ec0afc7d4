//! Kinds that are questions: who am I, whose token is this, may someone do something
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access>).

use kubewright_apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use super::fields::{entries, has, list, text};
use crate::{
    auth::{Access, Attempt, UserInfo},
    rbac::{Held, Rule, Verdict},
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
        let attempt = attempt(question);
        let Verdict { allowed, reason } = match self.0 {
            Subject::Asker => access.decide(access.user(), &attempt),
            Subject::Named | Subject::Local => access.decide(&named(question), &attempt),
        };
        let mut status = json!({"allowed": allowed});
        if !reason.is_empty() {
            status["reason"] = reason.into();
        }
        Some(Ok(status))
    }
}

/// Who is named in a question.
fn named(question: &Value) -> UserInfo {
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = entries(question, "/spec/extra").map(|(key, values)| (key.to_lowercase(), strings(values)));
    UserInfo {
        name: text(question, "/spec/user").into(),
        uid: text(question, "/spec/uid").into(),
        groups: strings(&question["spec"]["groups"]),
        extra: extra.collect(),
    }
}

/// What is asked about.
fn attempt(question: &Value) -> Attempt {
    if has(question, "/spec/nonResourceAttributes") {
        let spec = &question["spec"]["nonResourceAttributes"];
        return Attempt { verb: text(spec, "/verb").into(), path: text(spec, "/path").into(), ..Attempt::default() };
    }
    let spec = &question["spec"]["resourceAttributes"];
    let field = |name: &str| spec[name].as_str().unwrap_or_default().to_owned();
    Attempt {
        verb: field("verb"),
        group: field("group"),
        resource: field("resource"),
        subresource: field("subresource"),
        namespace: field("namespace"),
        name: field("name"),
        path: String::new(),
    }
}

/// `SelfSubjectRulesReview`: what may I do?
#[derive(Debug)]
pub(super) struct RulesReview;

impl Strategy for RulesReview {
    fn answer(&self, question: &Value, access: &Access<'_>) -> Option<Result<Value, Status>> {
        let namespace = text(question, "/spec/namespace");
        if namespace.is_empty() {
            return Some(Err(Status::bad_request("no namespace on request")));
        }
        let Held { rules, errors } = access.held(access.user(), namespace);
        let (paths, objects): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| rule.is_about_paths());
        let shown = |rules: Vec<&Rule>| rules.into_iter().map(Rule::to_value).collect::<Value>();
        let mut status =
            json!({"resourceRules": shown(objects), "nonResourceRules": shown(paths), "incomplete": false});
        if !errors.is_empty() {
            status["incomplete"] = true.into();
            status["evaluationError"] = errors.join(", ").into();
        }
        Some(Ok(status))
    }
}

/// `SelfSubjectReview`: who am I?
#[derive(Debug)]
pub(super) struct SelfReview;

impl Strategy for SelfReview {
    fn answer(&self, _question: &Value, access: &Access<'_>) -> Option<Result<Value, Status>> {
        Some(Ok(json!({"userInfo": access.user().to_value()})))
    }
}

/// `TokenReview`: whose token is this?
#[derive(Debug)]
pub(super) struct TokenReview;

impl Strategy for TokenReview {
    fn answer(&self, question: &Value, access: &Access<'_>) -> Option<Result<Value, Status>> {
        let token = text(question, "/spec/token");
        if token.is_empty() {
            return Some(Err(Status::bad_request("token is required for TokenReview in authentication")));
        }
        let wanted: Vec<_> =
            list(question, "/spec/audiences").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Some(Ok(match access.bearer(token, &wanted) {
            Ok((user, audiences)) => {
                json!({"authenticated": true, "user": user.to_value(), "audiences": audiences})
            }
            Err(why) => json!({"user": {}, "error": why.to_string()}),
        }))
    }
}
