//! The user of a token, by its claims.

use kubewright_apimachinery::{
    cel::{Composition, PolicyEnvironment, PolicyExpression, PolicyInput, PolicyOutput},
    types::json_type,
};
use kubewright_cluster::UserInfo;
use serde_json::{Map, Value, json};

use super::config::{JwtConfig, MappingConfig};

/// The extra attribute that names the token of a user in audit events.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
const TEXTS: &str = "expression must return a string or a list of strings";

type Claims = Map<String, Value>;

/// How the users of an issuer are determined, and which of them are accepted.
#[derive(Debug)]
pub(super) struct Mappings {
    username: Mapping,
    groups: Mapping,
    uid: Mapping,
    extra: Vec<(String, PolicyExpression)>,
    /// Claims with the only value that is accepted.
    required: Vec<(String, String)>,
    claim_rules: Vec<Rule>,
    user_rules: Vec<Rule>,
}

#[derive(Debug)]
enum Mapping {
    Absent,
    Claim { name: String, prefix: String },
    Expression(PolicyExpression),
}

/// A condition, with the message if it doesn't hold.
#[derive(Debug)]
struct Rule {
    expression: PolicyExpression,
    message: String,
}

impl Mappings {
    /// Returns the mappings of a valid configuration.
    pub(super) fn new(config: &JwtConfig) -> Self {
        let (mappings, rules) = (&config.claim_mappings, &config.claim_validation_rules);
        let rule = |expression: &str, message: &str| Rule {
            expression: PolicyExpression::new(expression),
            message: message.to_owned(),
        };
        let uid = &mappings.uid;
        let uid = MappingConfig { claim: uid.claim.clone(), prefix: None, expression: uid.expression.clone() };
        let extra = mappings.extra.iter();
        let (by_claim, by_expression): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| !rule.claim.is_empty());
        Self {
            username: Mapping::new(&mappings.username),
            groups: Mapping::new(&mappings.groups),
            uid: Mapping::new(&uid),
            extra: extra.map(|one| (one.key.clone(), PolicyExpression::new(&one.value_expression))).collect(),
            required: by_claim.into_iter().map(|one| (one.claim.clone(), one.required_value.clone())).collect(),
            claim_rules: by_expression.into_iter().map(|one| rule(&one.expression, &one.message)).collect(),
            user_rules: config.user_validation_rules.iter().map(|one| rule(&one.expression, &one.message)).collect(),
        }
    }

    /// Returns the user of a token with these claims.
    ///
    /// # Errors
    /// Returns kube-apiserver's message if the claims don't give a user, or if a rule refuses them.
    pub(super) async fn user(&self, claims: &Claims) -> Result<UserInfo, String> {
        let input = PolicyInput::claims(&Value::Object(claims.clone()));
        let environment = PolicyEnvironment::new([("claims", input)]);
        let mut user = UserInfo::new(self.username(claims, &environment).await?, Vec::<String>::new());
        user.groups = self.groups(claims, &environment).await?;
        user.uid = self.uid(claims, &environment).await?;
        if let Some(id) = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        for (key, expression) in &self.extra {
            let output = evaluate(expression, &environment).await?;
            let wrong = || format!("oidc: error evaluating extra claim expression: {}: {TEXTS}", expression.text());
            let values = output.to_texts().ok_or_else(wrong)?;
            if !values.is_empty() {
                user.extra.insert(key.clone(), values);
            }
        }
        self.check_required(claims)?;
        let failed = |what: &'static str| move |why: String| format!("oidc: error evaluating {what}: {why}");
        check(&self.claim_rules, &environment).await.map_err(failed("claim validation expression"))?;
        if !self.user_rules.is_empty() {
            let value = json!({
                "username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra,
            });
            let environment = PolicyEnvironment::new([("user", PolicyInput::claims(&value))]);
            check(&self.user_rules, &environment).await.map_err(failed("user info validation rule"))?;
        }
        Ok(user)
    }

    async fn username(&self, claims: &Claims, environment: &PolicyEnvironment) -> Result<String, String> {
        match &self.username {
            Mapping::Expression(expression) => {
                let failed = |why: String| format!("oidc: error evaluating username claim expression: {why}");
                let output = evaluate(expression, environment).await.map_err(failed)?;
                match output.as_str() {
                    None => Err(failed("username claim expression must return a string".to_owned())),
                    Some("") => Err("oidc: empty username via CEL expression is not allowed".to_owned()),
                    Some(name) => Ok(name.to_owned()),
                }
            }
            Mapping::Claim { name, prefix } => {
                let username = text_of(claims, name);
                let username = username.map_err(|why| format!("oidc: parse username claims {name:?}: {why}"))?;
                if name == "email" {
                    check_email(claims)?;
                }
                Ok(format!("{prefix}{username}"))
            }
            Mapping::Absent => Err("oidc: parse username claims \"\": claim not present".to_owned()),
        }
    }

    async fn groups(&self, claims: &Claims, environment: &PolicyEnvironment) -> Result<Vec<String>, String> {
        match &self.groups {
            Mapping::Claim { name, prefix } => {
                let Some(value) = claims.get(name) else { return check_distributed(claims, name) };
                let groups = texts(value).map_err(|why| format!("oidc: parse groups claim {name:?}: {why}"))?;
                Ok(groups.into_iter().map(|group| format!("{prefix}{group}")).collect())
            }
            Mapping::Expression(expression) => {
                let failed = |why: String| format!("oidc: error evaluating group claim expression: {why}");
                let output = evaluate(expression, environment).await.map_err(failed)?;
                output.to_texts().ok_or_else(|| failed(TEXTS.to_owned()))
            }
            Mapping::Absent => Ok(Vec::new()),
        }
    }

    async fn uid(&self, claims: &Claims, environment: &PolicyEnvironment) -> Result<String, String> {
        match &self.uid {
            Mapping::Claim { name, .. } => {
                text_of(claims, name).map_err(|why| format!("oidc: parse uid claim {name:?}: {why}"))
            }
            Mapping::Expression(expression) => {
                let failed = |why: String| format!("oidc: error evaluating uid claim expression: {why}");
                let output = evaluate(expression, environment).await.map_err(failed)?;
                let wrong = || failed("uid claim expression must return a string".to_owned());
                output.as_str().map(str::to_owned).ok_or_else(wrong)
            }
            Mapping::Absent => Ok(String::new()),
        }
    }

    fn check_required(&self, claims: &Claims) -> Result<(), String> {
        for (claim, wanted) in &self.required {
            if !claims.contains_key(claim) {
                return Err(format!("oidc: required claim {claim} not present in ID token"));
            }
            let found = text_of(claims, claim).map_err(|why| format!("oidc: parse claim {claim}: {why}"))?;
            if found != *wanted {
                let values = format!("Got = {found}, want = {wanted}");
                return Err(format!("oidc: required claim {claim} value does not match. {values}"));
            }
        }
        Ok(())
    }
}

impl Mapping {
    fn new(config: &MappingConfig) -> Self {
        let MappingConfig { claim, prefix, expression } = config;
        match (claim.is_empty(), expression.is_empty()) {
            (false, _) => Self::Claim { name: claim.clone(), prefix: prefix.clone().unwrap_or_default() },
            (true, false) => Self::Expression(PolicyExpression::new(expression)),
            (true, true) => Self::Absent,
        }
    }
}

async fn evaluate(expression: &PolicyExpression, environment: &PolicyEnvironment) -> Result<PolicyOutput, String> {
    let composition = Composition::default();
    let mut session = environment.session(&composition, None);
    session.evaluate(expression).await.map_err(|error| error.to_string())?
}

/// Checks that rules hold.
async fn check(rules: &[Rule], environment: &PolicyEnvironment) -> Result<(), String> {
    for Rule { expression, message } in rules {
        match evaluate(expression, environment).await?.as_bool() {
            Some(true) => {}
            Some(false) => return Err(format!("validation expression '{}' failed: {message}", expression.text())),
            None => return Err("validation expression must return a boolean".to_owned()),
        }
    }
    Ok(())
}

/// Checks that an absent claim isn't one that another server has (*distributed claims* of OpenID Connect).
fn check_distributed(claims: &Claims, name: &str) -> Result<Vec<String>, String> {
    match claims.get("_claim_names").and_then(|names| names.get(name)) {
        None => Ok(Vec::new()),
        Some(_) => Err(format!(
            "oidc: could not expand distributed claims: the claim {name:?} of another server is not supported"
        )),
    }
}

/// Checks that an address belongs to the user, if the issuer says whether it does.
fn check_email(claims: &Claims) -> Result<(), String> {
    match claims.get("email_verified") {
        None | Some(Value::Bool(true)) => Ok(()),
        Some(Value::Bool(false) | Value::Null) => Err("oidc: email not verified".to_owned()),
        Some(other) => Err(format!("oidc: parse 'email_verified' claim: {}", wrong(other, "bool"))),
    }
}

fn text_of(claims: &Claims, name: &str) -> Result<String, String> {
    text(claims.get(name).ok_or("claim not present")?)
}

/// Returns a text. As in Go, null is an empty one.
fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Null => Ok(String::new()),
        other => Err(wrong(other, "string")),
    }
}

/// Returns a text or a list of texts as a list.
fn texts(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => items.iter().map(text).collect::<Result<_, _>>().map_err(|_| wrong(value, "string")),
        one => Ok(vec![text(one)?]),
    }
}

/// Returns the error of Go's decoder about a value of the wrong type.
fn wrong(value: &Value, wanted: &str) -> String {
    let found = json_type(value);
    format!("json: cannot unmarshal {found} into Go value of type {wanted}")
}

#[cfg(test)]
mod tests;
