//! Validation of an authentication configuration, by the rules and in the words of Kubernetes.

use std::collections::BTreeSet;

use kubewright_apimachinery::{
    cel::{Expected, PolicyDeclarations, Refusal, selects},
    name::dns1123_subdomain,
    status::{Cause, aggregate},
};
use pem::parse_many;
use serde_json::json;

use super::config::{
    AnonymousConfig, AuthenticationConfig, ClaimRuleConfig, ExtraConfig, IssuerConfig, JwtConfig, MappingConfig,
    MappingsConfig, UserRuleConfig,
};

/// The greatest number of issuers.
const MAX_ISSUERS: usize = 64;
const BOTH: &str = "claim and expression can't both be set";
const VERIFIED: &str = "claims.email_verified must be used in claimMappings.username.expression or \
    claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in \
    claimMappings.username.expression";
/// The characters of the path of a URL, in the form of a pattern and besides letters and digits.
const PATH_PATTERN: &str = "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+";
const PATH_MARKS: &str = "/-._~%!$&'()*+,;=:";

/// Checks a configuration. `own` are the issuers of the tokens of service accounts, which can't be those of others;
/// `before` is the configuration of anonymous requests that the server started with, if it runs.
///
/// # Errors
/// The errors about all fields, in Kubernetes' words.
pub(super) fn validate(
    config: &AuthenticationConfig,
    own: &[String],
    before: Option<&Option<AnonymousConfig>>,
) -> Result<(), String> {
    let mut causes = Vec::new();
    let errors = &mut causes;
    if config.jwt.len() > MAX_ISSUERS {
        errors.push(Cause::too_many("jwt", config.jwt.len(), MAX_ISSUERS));
        return finish(&causes);
    }
    let (mut issuers, mut discovery) = (BTreeSet::new(), BTreeSet::new());
    for (index, jwt) in config.jwt.iter().enumerate() {
        let path = format!("jwt[{index}]");
        authenticator(errors, &path, jwt, own);
        let IssuerConfig { url, discovery_url, .. } = &jwt.issuer;
        if !issuers.insert(url) {
            duplicate(errors, &format!("{path}.issuer.url"), url);
        }
        if !discovery_url.is_empty() && !discovery.insert(discovery_url) {
            duplicate(errors, &format!("{path}.issuer.discoveryURL"), discovery_url);
        }
    }
    if let Some(AnonymousConfig { enabled: false, conditions }) = &config.anonymous
        && !conditions.is_empty()
    {
        let paths = conditions.iter().map(|condition| json!({"Path": condition.path})).collect::<Vec<_>>();
        let why = "enabled should be set to true when conditions are defined";
        errors.push(Cause::invalid("anonymous.conditions", &paths.into(), why));
    }
    if before.is_some_and(|before| *before != config.anonymous) {
        errors.push(Cause::forbidden("anonymous", "changed from initial configuration file"));
    }
    finish(&causes)
}

fn finish(causes: &[Cause]) -> Result<(), String> {
    aggregate(causes).map_or(Ok(()), Err)
}

fn invalid(errors: &mut Vec<Cause>, path: &str, value: &str, why: &str) {
    errors.push(Cause::invalid(path, &value.into(), why));
}

fn duplicate(errors: &mut Vec<Cause>, path: &str, value: &str) {
    errors.push(Cause::duplicate(path, &value.into()));
}

fn authenticator(errors: &mut Vec<Cause>, path: &str, jwt: &JwtConfig, own: &[String]) {
    issuer(errors, &format!("{path}.issuer"), &jwt.issuer, own);
    claim_rules(errors, &format!("{path}.claimValidationRules"), &jwt.claim_validation_rules);
    let mappings = &jwt.claim_mappings;
    mapped(errors, &format!("{path}.claimMappings"), mappings);
    let email = |expression: &str, field: &str| selects(expression, "claims", field);
    let username = mappings.username.expression.as_str();
    let mut others = mappings.extra.iter().map(|extra| extra.value_expression.as_str());
    let mut rules = jwt.claim_validation_rules.iter().map(|rule| rule.expression.as_str());
    if email(username, "email")
        && !email(username, "email_verified")
        && !others.any(|text| email(text, "email_verified"))
        && !rules.any(|text| email(text, "email_verified"))
    {
        invalid(errors, &format!("{path}.claimMappings.username.expression"), username, VERIFIED);
    }
    user_rules(errors, &format!("{path}.userValidationRules"), &jwt.user_validation_rules);
}

fn issuer(errors: &mut Vec<Cause>, path: &str, issuer: &IssuerConfig, own: &[String]) {
    let IssuerConfig { url, discovery_url, certificate_authority, audiences, audience_match_policy, .. } = issuer;
    if url.is_empty() {
        errors.push(Cause::required(format!("{path}.url"), ""));
    } else {
        address(errors, &format!("{path}.url"), url, own);
    }
    if !discovery_url.is_empty() {
        let path = format!("{path}.discoveryURL");
        if !url.is_empty() && url.trim_end_matches('/') == discovery_url.trim_end_matches('/') {
            invalid(errors, &path, discovery_url, "discoveryURL must be different from URL");
        }
        address(errors, &path, discovery_url, &[]);
    }
    let field = format!("{path}.audiences");
    if audiences.is_empty() {
        errors.push(Cause::required(&field, &format!("at least one {field} is required")));
    }
    let mut known = BTreeSet::new();
    for (index, audience) in audiences.iter().enumerate() {
        let field = format!("{field}[{index}]");
        if audience.is_empty() {
            errors.push(Cause::required(&field, ""));
        }
        if !known.insert(audience) {
            duplicate(errors, &field, audience);
        }
    }
    let policy = format!("{path}.audienceMatchPolicy");
    match (audiences.len(), audience_match_policy.as_str()) {
        (0, _) | (_, "MatchAny") | (1, "") => {}
        (1, other) => {
            invalid(errors, &policy, other, "audienceMatchPolicy must be empty or MatchAny for single audience")
        }
        (_, other) => invalid(errors, &policy, other, "audienceMatchPolicy must be MatchAny for multiple audiences"),
    }
    if !certificate_authority.is_empty() && !has_certificate(certificate_authority) {
        let why = "data does not contain any valid RSA or ECDSA certificates";
        invalid(errors, &format!("{path}.certificateAuthority"), "<omitted>", why);
    }
    match issuer.egress_selector_type.as_str() {
        "" => {}
        // The configuration of egress selection is missing here.
        selector @ ("controlplane" | "cluster") => {
            let why = format!("oidc: egress lookup required with egress selector type {selector:?}");
            errors.push(Cause::internal(format!("{path}.egressSelectorType"), &why));
        }
        other => {
            let why = "egress selector must be either controlplane or cluster";
            invalid(errors, &format!("{path}.egressSelectorType"), other, why);
        }
    }
}

fn has_certificate(text: &str) -> bool {
    parse_many(text).is_ok_and(|parts| parts.iter().any(|part| part.tag() == "CERTIFICATE"))
}

/// Checks the URL of an issuer.
fn address(errors: &mut Vec<Cause>, path: &str, url: &str, own: &[String]) {
    if own.iter().any(|issuer| issuer == url) {
        let mut own = own.to_vec();
        own.sort();
        let why = format!("URL must not overlap with disallowed issuers: [{}]", own.join(" "));
        invalid(errors, path, url, &why);
    }
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let authority = rest.split('/').next().unwrap_or_default();
    let wrong = [
        (!scheme.eq_ignore_ascii_case("https"), "URL scheme must be https"),
        (authority.contains('@'), "URL must not contain a username or password"),
        (!query.is_empty(), "URL must not contain a query"),
        (!fragment.is_empty(), "URL must not contain a fragment"),
    ];
    let mut is_accepted = true;
    for (_, why) in wrong.into_iter().filter(|(is_wrong, _)| *is_wrong) {
        invalid(errors, path, url, why);
        is_accepted = false;
    }
    if let Err(error) = url.parse::<http::Uri>()
        && is_accepted
    {
        invalid(errors, path, url, &format!("parse {url:?}: {error}"));
    }
}

fn claim_rules(errors: &mut Vec<Cause>, path: &str, rules: &[ClaimRuleConfig]) {
    let (mut claims, mut expressions) = (BTreeSet::new(), BTreeSet::new());
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let ClaimRuleConfig { claim, required_value, expression, message } = rule;
        match (claim.is_empty(), expression.is_empty()) {
            (false, false) => invalid(errors, &path, claim, BOTH),
            (true, true) => errors.push(Cause::required(&path, "claim or expression is required")),
            (false, true) => {
                if !message.is_empty() {
                    invalid(errors, &format!("{path}.message"), message, "may not be specified when claim is set");
                }
                if !claims.insert(claim) {
                    duplicate(errors, &format!("{path}.claim"), claim);
                }
            }
            (true, false) => {
                if !required_value.is_empty() {
                    let why = "may not be specified when expression is set";
                    invalid(errors, &format!("{path}.requiredValue"), required_value, why);
                }
                let path = format!("{path}.expression");
                if expressions.insert(expression) {
                    check(errors, &path, expression, &PolicyDeclarations::of_claims(), Expected::Bool);
                } else {
                    duplicate(errors, &path, expression);
                }
            }
        }
    }
}

fn mapped(errors: &mut Vec<Cause>, path: &str, mappings: &MappingsConfig) {
    mapping(errors, &format!("{path}.username"), &mappings.username, true);
    mapping(errors, &format!("{path}.groups"), &mappings.groups, false);
    let uid = &mappings.uid;
    if !uid.claim.is_empty() && !uid.expression.is_empty() {
        invalid(errors, &format!("{path}.uid"), "", BOTH);
    } else if !uid.expression.is_empty() {
        let path = format!("{path}.uid.expression");
        check(errors, &path, &uid.expression, &PolicyDeclarations::of_claims(), Expected::Any);
    }
    let mut keys = BTreeSet::new();
    for (index, ExtraConfig { key, value_expression }) in mappings.extra.iter().enumerate() {
        let path = format!("{path}.extra[{index}]");
        extra_key(errors, &format!("{path}.key"), key);
        if !keys.insert(key) {
            duplicate(errors, &format!("{path}.key"), key);
        } else if value_expression.is_empty() {
            errors.push(Cause::required(format!("{path}.valueExpression"), ""));
        } else {
            let path = format!("{path}.valueExpression");
            check(errors, &path, value_expression, &PolicyDeclarations::of_claims(), Expected::Any);
        }
    }
}

fn mapping(errors: &mut Vec<Cause>, path: &str, mapping: &MappingConfig, is_required: bool) {
    let MappingConfig { claim, prefix, expression } = mapping;
    match (claim.is_empty(), expression.is_empty()) {
        (false, false) => invalid(errors, path, "", BOTH),
        (true, true) if is_required => errors.push(Cause::required(path, "claim or expression is required")),
        (true, true) => {}
        (true, false) => {
            if let Some(prefix) = prefix {
                invalid(errors, &format!("{path}.prefix"), prefix, "may not be specified when expression is set");
            }
            let path = format!("{path}.expression");
            check(errors, &path, expression, &PolicyDeclarations::of_claims(), Expected::Any);
        }
        (false, true) if prefix.is_none() => {
            let why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
            errors.push(Cause::required(format!("{path}.prefix"), why));
        }
        (false, true) => {}
    }
}

/// Checks the key of an extra attribute: a domain, a slash and a path, in lower case.
fn extra_key(errors: &mut Vec<Cause>, path: &str, key: &str) {
    let (domain, rest) = key.split_once('/').unwrap_or_default();
    if key.is_empty() {
        errors.push(Cause::required(path, ""));
    } else if domain.is_empty() || rest.is_empty() {
        invalid(errors, path, key, "must be a domain-prefixed path (such as \"acme.io/foo\")");
    } else {
        for why in dns1123_subdomain(domain) {
            invalid(errors, path, domain, &why);
        }
        if !rest.chars().all(|letter| letter.is_ascii_alphanumeric() || PATH_MARKS.contains(letter)) {
            let why = format!("Invalid path (regex used for validation is '{PATH_PATTERN}')");
            invalid(errors, path, rest, &why);
        }
    }
    if key != key.to_lowercase() {
        invalid(errors, path, key, "must be lowercase");
    }
    let is_of = |of: &str| domain == of || domain.strip_suffix(of).is_some_and(|rest| rest.ends_with('.'));
    if is_of("kubernetes.io") || is_of("k8s.io") {
        invalid(errors, path, key, "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use");
    }
}

fn user_rules(errors: &mut Vec<Cause>, path: &str, rules: &[UserRuleConfig]) {
    let mut known = BTreeSet::new();
    for (index, UserRuleConfig { expression, .. }) in rules.iter().enumerate() {
        let path = format!("{path}[{index}].expression");
        if expression.is_empty() {
            errors.push(Cause::required(&path, ""));
        } else if !known.insert(expression) {
            duplicate(errors, &path, expression);
        } else {
            check(errors, &path, expression, &PolicyDeclarations::of_user(), Expected::Bool);
        }
    }
}

/// Checks an expression.
fn check(errors: &mut Vec<Cause>, path: &str, expression: &str, declarations: &PolicyDeclarations, expected: Expected) {
    match declarations.check(expression, expected) {
        Ok(()) => {}
        Err(Refusal::Expression(why)) => {
            // Kubernetes doesn't name the type that an expression has instead.
            let why = why.split_once(" but got ").map_or(&*why, |(must, _)| match must {
                "must evaluate to bool" => must,
                _ => &why,
            });
            invalid(errors, path, expression, why);
        }
        Err(Refusal::Program(why)) => errors.push(Cause::internal(path, &why)),
    }
}

#[cfg(test)]
mod tests;
