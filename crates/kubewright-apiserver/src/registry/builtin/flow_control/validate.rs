//! Validation of flow schemas and priority levels.

use kubewright_apimachinery::name;
use serde_json::Value;

use super::defaults::{mandatory_level, mandatory_schema};
use crate::registry::builtin::validation::{
    Errors, Path, Shown, boolean, entry, field, inclusive_range, int, items, optional_int, string, strings,
    validate_text,
};

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
/// The greatest precedence of a schema.
const MAX_PRECEDENCE: i64 = 10_000;
/// The greatest number of queues.
const MAX_QUEUES: i64 = 10_000_000;
/// The number of bits of the hash by which a flow's queues are chosen.
const HASH_BITS: u32 = 60;

/// Checks a flow schema.
pub(super) fn validate_flow_schema(schema: &Value, errors: &mut Errors) {
    let (name, spec, path) = (string(&schema["metadata"], "name"), &schema["spec"], Path::new("spec"));
    let (precedence, at) = (int(spec, "matchingPrecedence"), path.child("matchingPrecedence"));
    if precedence <= 0 {
        errors.invalid(&at, precedence, "must be a positive value");
    }
    if precedence > MAX_PRECEDENCE {
        errors.invalid(&at, precedence, &format!("must not be greater than {MAX_PRECEDENCE}"));
    }
    if precedence == 1 && name != "exempt" {
        errors.invalid(&at, precedence, "only the schema named 'exempt' may have matchingPrecedence 1");
    }
    const METHODS: &[&str] = &["ByNamespace", "ByUser"];
    if let Some(method) = field(spec, "distinguisherMethod").map(|method| string(method, "type"))
        && !METHODS.contains(&method)
    {
        let at = path.child("distinguisherMethod");
        errors.not_supported(&at.child("type"), Shown::object([("Type", method.into())]), METHODS);
    }
    let at = path.child("priorityLevelConfiguration");
    match string(&spec["priorityLevelConfiguration"], "name") {
        "" => errors.required(&at.child("name"), "must reference a priority level"),
        level => validate_text(level, name::dns1123_subdomain, &at.child("name"), errors),
    }
    let at = path.child("rules");
    for (index, rule) in items(spec, "rules").iter().enumerate() {
        validate_rule(rule, &at.index(index), errors);
    }
    if mandatory_schema(name).is_some_and(|fixed| fixed != *spec) {
        errors.invalid(&path, spec.clone(), &format!("spec of '{name}' must equal the fixed value"));
    }
    validate_conditions(schema, errors);
}

/// Checks the conditions in a status.
pub(super) fn validate_conditions(object: &Value, errors: &mut Errors) {
    let path = Path::new("status.conditions");
    let mut seen = Vec::new();
    for (index, condition) in items(&object["status"], "conditions").iter().enumerate() {
        let path = path.index(index);
        let kind = string(condition, "type");
        if seen.contains(&kind) {
            errors.duplicate(&path.child("type"), kind);
        }
        seen.push(kind);
        if kind.is_empty() {
            errors.required(&path.child("type"), "");
        }
    }
}

fn validate_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (subjects, at) = (items(rule, "subjects"), path.child("subjects"));
    if subjects.is_empty() {
        errors.required(&at, "subjects must contain at least one value");
    }
    for (index, subject) in subjects.iter().enumerate() {
        validate_subject(subject, &at.index(index), errors);
    }
    let (resources, others) = (items(rule, "resourceRules"), items(rule, "nonResourceRules"));
    if resources.is_empty() && others.is_empty() {
        errors.required(path, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    let at = path.child("resourceRules");
    for (index, rule) in resources.iter().enumerate() {
        validate_resource_rule(rule, &at.index(index), errors);
    }
    let at = path.child("nonResourceRules");
    for (index, rule) in others.iter().enumerate() {
        validate_path_rule(rule, &at.index(index), errors);
    }
}

fn validate_subject(subject: &Value, path: &Path<'_>, errors: &mut Errors) {
    const KINDS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = string(subject, "kind");
    let Some((_, own)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        return errors.not_supported(&path.child("kind"), kind, &["Group", "ServiceAccount", "User"]);
    };
    let at = path.child(own);
    match field(subject, own) {
        None => errors.required(&at, &format!("{own} is required when subject kind is '{kind}'")),
        Some(subject) => {
            let name = string(subject, "name");
            if name.is_empty() {
                errors.required(&at.child("name"), "");
            } else if kind == "ServiceAccount" && name != "*" {
                validate_text(name, name::dns1123_subdomain, &at.child("name"), errors);
            }
            if kind == "ServiceAccount" {
                match string(subject, "namespace") {
                    "" => errors.required(&at.child("namespace"), "must specify namespace for service account"),
                    namespace => validate_text(namespace, name::dns1123_label, &at.child("namespace"), errors),
                }
            }
        }
    }
    for (kind, other) in KINDS.iter().filter(|(_, other)| other != own) {
        if field(subject, other).is_some() {
            errors.forbidden(&path.child(other), &format!("{other} is forbidden when subject kind is not '{kind}'"));
        }
    }
}

/// Checks a list that is either `*` or some values. Returns whether it is neither empty nor a wildcard.
fn validate_list(rule: &Value, field: &str, missing: &str, what: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let list = items(rule, field);
    let has_wildcard = list.iter().any(|item| item == "*");
    if list.is_empty() {
        errors.required(&path.child(field), missing);
    } else if has_wildcard && list.len() > 1 {
        let why = format!("if '*' is present, must not specify other {what}");
        errors.invalid(&path.child(field), list.to_vec(), &why);
    }
    !has_wildcard && !list.is_empty()
}

fn validate_verbs(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    if validate_list(rule, "verbs", "verbs must contain at least one value", "verbs", path, errors)
        && strings(rule, "verbs").any(|verb| !VERBS.contains(&verb))
    {
        errors.not_supported(&path.child("verbs"), items(rule, "verbs").to_vec(), VERBS);
    }
}

fn validate_resource_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_verbs(rule, path, errors);
    let missing = "resource rules must supply at least one api group";
    validate_list(rule, "apiGroups", missing, "api groups", path, errors);
    let missing = "resource rules must supply at least one resource";
    validate_list(rule, "resources", missing, "resources", path, errors);
    if items(rule, "namespaces").is_empty() && boolean(rule, "clusterScope") {
        return;
    }
    let missing = "resource rules that are not cluster scoped must supply at least one namespace";
    if validate_list(rule, "namespaces", missing, "namespaces", path, errors) {
        let path = path.child("namespaces");
        for (index, namespace) in strings(rule, "namespaces").enumerate() {
            for why in name::dns1123_label(namespace) {
                let why = format!("each member of this list must be '*' or a DNS-1123 label; {why}");
                errors.invalid(&path.index(index), namespace, &why);
            }
        }
    }
}

fn validate_path_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_verbs(rule, path, errors);
    let missing = "nonResourceURLs must contain at least one value";
    if validate_list(rule, "nonResourceURLs", missing, "non-resource URLs", path, errors) {
        let path = path.child("nonResourceURLs");
        for (index, url) in strings(rule, "nonResourceURLs").enumerate() {
            let wildcards = url.matches('*').count();
            let why = match url {
                "" => "must not be empty",
                "/" => continue,
                url if !url.starts_with('/') => "must start with slash",
                url if url.contains(' ') => "must not contain white-space",
                url if url.contains("//") => "must not contain double slash",
                url if wildcards > 1 || (wildcards == 1 && !url.ends_with("/*")) => {
                    "wildcard can only do suffix matching"
                }
                _ => continue,
            };
            errors.invalid(&path.index(index), url, why);
        }
    }
}

/// Checks a priority level.
pub(super) fn validate_priority_level(level: &Value, errors: &mut Errors) {
    const PRESERVE: &str = "flowcontrol.k8s.io/concurrency-shares-defaults-to-zero";
    if entry(&level["metadata"], "annotations", PRESERVE).is_some() {
        errors.forbidden(&Path::new("metadata.annotations"), &format!("annotation '{PRESERVE}' is forbidden"));
    }
    let (name, spec, path) = (string(&level["metadata"], "name"), &level["spec"], Path::new("spec"));
    let (kind, at) = (string(spec, "type"), path.child("type"));
    if (name == "exempt") != (kind == "Exempt") {
        errors.invalid(&at, kind, "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    let (exempt, limited) = (field(spec, "exempt"), field(spec, "limited"));
    match (kind, limited) {
        ("Exempt", _) => {
            if limited.is_some() {
                errors.forbidden(&path.child("limited"), "must be nil if the type is not Limited");
            }
            if let Some(exempt) = exempt {
                validate_shares(exempt, &path.child("exempt"), errors);
            }
        }
        ("Limited", _) => {
            if exempt.is_some() {
                errors.forbidden(&path.child("exempt"), "must be nil if the type is Limited");
            }
            match limited {
                None => errors.required(&path.child("limited"), "must not be empty when type is Limited"),
                Some(limited) => validate_limited(limited, &path.child("limited"), errors),
            }
        }
        ("", _) => errors.required(&at, ""),
        (other, _) => errors.not_supported(&at, other, &["Exempt", "Limited"]),
    }
    validate_mandatory_level(name, spec, &path, errors);
    validate_conditions(level, errors);
}

fn validate_mandatory_level(name: &str, spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(mut fixed) = mandatory_level(name) else { return };
    let mut compared = spec.clone();
    let is_exempt = name == "exempt";
    for spec in [&mut fixed, &mut compared] {
        if let Some(fields) = spec.as_object_mut().filter(|_| is_exempt) {
            fields.remove("exempt");
        }
    }
    if fixed != compared {
        let part = if is_exempt { " except the 'spec.exempt' field" } else { "" };
        errors.invalid(path, spec.clone(), &format!("spec of '{name}'{part} must equal the fixed value"));
    }
}

fn validate_shares(level: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(shares) = optional_int(level, "nominalConcurrencyShares").filter(|shares| *shares < 0) {
        errors.invalid(&path.child("nominalConcurrencyShares"), shares, "must be a non-negative integer");
    }
    validate_lendable(level, path, errors);
}

fn validate_lendable(level: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(percent) = optional_int(level, "lendablePercent").filter(|percent| !(0..=100).contains(percent)) {
        errors.invalid(&path.child("lendablePercent"), percent, &inclusive_range(0, 100));
    }
}

fn validate_limited(limited: &Value, path: &Path<'_>, errors: &mut Errors) {
    let shares = int(limited, "nominalConcurrencyShares");
    if shares < 0 {
        errors.invalid(&path.child("nominalConcurrencyShares"), shares, "must be a non-negative integer");
    }
    let (response, at) = (&limited["limitResponse"], path.child("limitResponse"));
    match (string(response, "type"), field(response, "queuing")) {
        ("Reject", Some(_)) => {
            errors.forbidden(&at.child("queuing"), "must be nil if limited.limitResponse.type is not Limited");
        }
        ("Reject", None) => {}
        ("Queue", None) => {
            errors.required(&at.child("queuing"), "must not be empty if limited.limitResponse.type is Limited");
        }
        ("Queue", Some(queuing)) => validate_queuing(queuing, &at.child("queuing"), errors),
        ("", _) => errors.required(&at.child("type"), ""),
        (other, _) => errors.not_supported(&at.child("type"), other, &["Queue", "Reject"]),
    }
    validate_lendable(limited, path, errors);
    if let Some(percent) = optional_int(limited, "borrowingLimitPercent").filter(|percent| *percent < 0) {
        let why = "if specified, must be a non-negative integer";
        errors.invalid(&path.child("borrowingLimitPercent"), percent, why);
    }
}

fn validate_queuing(queuing: &Value, path: &Path<'_>, errors: &mut Errors) {
    let number = |name| int(queuing, name);
    let (length, queues, hand) = (number("queueLengthLimit"), number("queues"), number("handSize"));
    for (name, number) in [("queueLengthLimit", length), ("queues", queues), ("handSize", hand)] {
        let path = path.child(name);
        if number <= 0 {
            errors.invalid(&path, number, "must be positive");
        } else if name == "queues" && number > MAX_QUEUES {
            errors.invalid(&path, number, &format!("must not be greater than {MAX_QUEUES}"));
        } else if name == "handSize" && number > queues {
            errors.invalid(&path, number, &format!("should not be greater than queues ({queues})"));
        } else if name == "handSize" && exceeds_hash(queues, hand) {
            let why = format!(
                "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
            );
            errors.invalid(&path, number, &why);
        }
    }
}

/// Returns whether the choice of a flow's queues needs more bits than its hash has.
fn exceeds_hash(queues: i64, hand: i64) -> bool {
    let choices = u128::try_from(queues).ok().zip(u32::try_from(hand).ok());
    choices.and_then(|(queues, hand)| queues.checked_pow(hand)).is_none_or(|choices| choices > 1 << HASH_BITS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(validate: fn(&Value, &mut Errors), object: Value, expect: &[&str]) {
        let found = Errors::collect(|errors| validate(&object, errors));
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn schemas_are_checked() {
        let rule = json!({
            "subjects": [{"kind": "User", "user": {"name": "u"}, "group": {"name": "g"}}],
            "resourceRules": [{"verbs": ["*", "get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["A"]}],
        });
        let spec = json!({"matchingPrecedence": 1, "priorityLevelConfiguration": {"name": "l"}, "rules": [rule]});
        let label = name::dns1123_label("A").remove(0);
        check(
            validate_flow_schema,
            json!({"metadata": {"name": "s"}, "spec": spec}),
            &[
                "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
                "spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'",
                "spec.rules[0].resourceRules[0].verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify \
                 other verbs",
                &format!(
                    "spec.rules[0].resourceRules[0].namespaces[0]: Invalid value: \"A\": each member of this list must be \
                     '*' or a DNS-1123 label; {label}"
                ),
            ],
        );
    }

    #[test]
    fn levels_are_checked() {
        let level = |queuing: Value| {
            let limited = json!({"limitResponse": {"type": "Queue", "queuing": queuing}});
            json!({"metadata": {"name": "l"}, "spec": {"type": "Limited", "limited": limited}})
        };
        check(validate_priority_level, level(json!({"queues": 64, "handSize": 6, "queueLengthLimit": 50})), &[]);
        check(
            validate_priority_level,
            level(json!({"queues": 1024, "handSize": 7, "queueLengthLimit": 0})),
            &[
                "spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: 0: must be positive",
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 7: required entropy bits of deckSize 1024 and \
                 handSize 7 should not be greater than 60",
            ],
        );
    }
}
