//! Reviews of users, tokens and permissions. They are answered but not stored
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access>).

use kubewright_apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use super::{
    review_selectors,
    validation::{Errors, Path},
};
use crate::{
    auth::{Attributes, Identified, Requester, UserInfo},
    authorizer::{Decision, EffectiveRules, PolicyRule},
    fields::{entries, has, list, text},
    object_type,
    registry::Strategy,
};

/// The subject of an access review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// The requester.
    Requester,
    /// The user that the review names.
    Named,
    /// The user that the review names, in the namespace of the review.
    Local,
}

/// The strategy of `SelfSubjectAccessReview`, `SubjectAccessReview` and `LocalSubjectAccessReview`.
#[derive(Debug)]
pub(super) struct AccessReview(pub(super) Subject);

impl AccessReview {
    fn causes(&self, review: &Value) -> Vec<Cause> {
        let (resource, path) = ("spec.resourceAttributes", "spec.nonResourceAttributes");
        let shown = &review["spec"]["nonResourceAttributes"];
        // In the form of Kubernetes' internal type.
        let value = json!({"Path": text(shown, "/path"), "Verb": text(shown, "/verb")});
        let mut causes = match (has(review, "/spec/resourceAttributes"), has(review, "/spec/nonResourceAttributes")) {
            (true, true) => {
                let why = "cannot be specified in combination with resourceAttributes";
                vec![Cause::invalid(path, &value, why)]
            }
            (false, false) => {
                let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
                vec![Cause::invalid(resource, &Value::Null, why)]
            }
            (false, true) if self.0 == Subject::Local => {
                vec![Cause::invalid(path, &value, "disallowed on this kind of request")]
            }
            _ => Vec::new(),
        };
        if self.0 != Subject::Requester
            && text(review, "/spec/user").is_empty()
            && list(review, "/spec/groups").is_empty()
        {
            causes.push(Cause::invalid("spec.user", &json!(""), "at least one of user or group must be specified"));
        }
        let selectors = &review["spec"]["resourceAttributes"];
        causes.extend(Errors::collect(|errors| review_selectors::validate(selectors, &Path::new(resource), errors)));
        let namespace = text(review, "/spec/resourceAttributes/namespace");
        let names_resource = has(review, "/spec/resourceAttributes");
        if self.0 == Subject::Local && names_resource && namespace != text(review, "/metadata/namespace") {
            let field = "spec.resourceAttributes.namespace";
            causes.push(Cause::invalid(field, &json!(namespace), "must match metadata.namespace"));
        }
        causes.extend(self.metadata_cause(&review["metadata"]));
        causes
    }

    /// Returns the error about metadata of the review, which must have none but the namespace of a local one.
    fn metadata_cause(&self, metadata: &Value) -> Option<Cause> {
        let allowed = ["managedFields", if self.0 == Subject::Local { "namespace" } else { "" }];
        let mut fields = metadata.as_object()?.keys();
        fields.find(|field| !allowed.contains(&field.as_str()))?;
        let shown = String::from_utf8(object_type::object_meta(metadata)).unwrap_or_default();
        let except = if self.0 == Subject::Local { " except for namespace" } else { "" };
        Some(Cause::new("FieldValueInvalid", "metadata", format!("Invalid value: {shown}: must be empty{except}")))
    }
}

impl Strategy for AccessReview {
    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        self.causes(new)
    }

    fn review(&self, review: &Value, requester: &Requester<'_>) -> Option<Result<Value, Status>> {
        let attributes = attributes(review);
        let Decision { allowed, denied, reason, error } = match self.0 {
            Subject::Requester => requester.authorize(requester.user(), &attributes),
            Subject::Named | Subject::Local => requester.authorize(&named_user(review), &attributes),
        };
        let mut status = json!({"allowed": allowed});
        if denied {
            status["denied"] = true.into();
        }
        if !reason.is_empty() {
            status["reason"] = reason.into();
        }
        let selectors = review_selectors::evaluation_error(&review["spec"]["resourceAttributes"]);
        if let Some(why) = Some(error).filter(|error| !error.is_empty()).or(selectors) {
            status["evaluationError"] = why.into();
        }
        Some(Ok(status))
    }
}

/// Returns the user that a review names.
fn named_user(review: &Value) -> UserInfo {
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = entries(review, "/spec/extra").map(|(key, values)| (key.to_lowercase(), strings(values)));
    UserInfo {
        name: text(review, "/spec/user").into(),
        uid: text(review, "/spec/uid").into(),
        groups: strings(&review["spec"]["groups"]),
        extra: extra.collect(),
        ..UserInfo::default()
    }
}

/// Returns the attributes of the request that a review describes.
fn attributes(review: &Value) -> Attributes {
    if has(review, "/spec/nonResourceAttributes") {
        let spec = &review["spec"]["nonResourceAttributes"];
        return Attributes {
            verb: text(spec, "/verb").into(),
            path: text(spec, "/path").into(),
            ..Attributes::default()
        };
    }
    let spec = &review["spec"]["resourceAttributes"];
    let field = |name: &str| spec[name].as_str().unwrap_or_default().to_owned();
    Attributes {
        verb: field("verb"),
        group: field("group"),
        resource: field("resource"),
        subresource: field("subresource"),
        namespace: field("namespace"),
        name: field("name"),
        path: String::new(),
        fields: review_selectors::exact_fields(spec),
    }
}

/// The strategy of `SelfSubjectRulesReview`.
#[derive(Debug)]
pub(super) struct RulesReview;

impl Strategy for RulesReview {
    fn answers_status_only(&self) -> bool {
        true
    }

    fn review(&self, review: &Value, requester: &Requester<'_>) -> Option<Result<Value, Status>> {
        let namespace = text(review, "/spec/namespace");
        if namespace.is_empty() {
            return Some(Err(Status::bad_request("no namespace on request")));
        }
        let EffectiveRules { rules, errors } = requester.effective_rules(requester.user(), namespace);
        let (paths, objects): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| rule.is_non_resource());
        let values = |rules: Vec<&PolicyRule>| rules.into_iter().map(PolicyRule::to_value).collect::<Value>();
        let mut status =
            json!({"resourceRules": values(objects), "nonResourceRules": values(paths), "incomplete": false});
        if !errors.is_empty() {
            status["incomplete"] = true.into();
            status["evaluationError"] = errors.join(", ").into();
        }
        Some(Ok(status))
    }
}

/// The strategy of `SelfSubjectReview`.
#[derive(Debug)]
pub(super) struct SelfReview;

impl Strategy for SelfReview {
    fn review(&self, _review: &Value, requester: &Requester<'_>) -> Option<Result<Value, Status>> {
        Some(Ok(json!({"userInfo": requester.user().to_value()})))
    }

    fn stamps_review(&self) -> bool {
        true
    }
}

/// The strategy of `TokenReview`.
#[derive(Debug)]
pub(super) struct TokenReview;

impl Strategy for TokenReview {
    fn review(&self, review: &Value, requester: &Requester<'_>) -> Option<Result<Value, Status>> {
        let token = text(review, "/spec/token");
        if token.is_empty() {
            return Some(Err(Status::bad_request("token is required for TokenReview in authentication")));
        }
        let audiences: Vec<_> =
            list(review, "/spec/audiences").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Some(Ok(match requester.authenticate_token(token, &audiences) {
            Ok(Identified { user, audiences, .. }) => {
                json!({"authenticated": true, "user": user.to_value(), "audiences": audiences})
            }
            Err(why) => json!({"user": {}, "error": why.to_string()}),
        }))
    }
}
