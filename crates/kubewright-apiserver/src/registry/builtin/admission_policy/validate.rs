//! Validation of admission policies and their bindings.

use kubewright_apimachinery::{
    cel::{Expected, PolicyDeclarations, Refusal},
    name,
};
use serde_json::{Value, json};

use crate::{
    admission::Phase,
    registry::builtin::{
        validation::{
            Errors, Path, field, items, optional_string, string, strings, validate_conditions, validate_label_selector,
            validate_required_name, validate_text,
        },
        webhook::{validate_enum, validate_match_conditions, validate_rule_with_operations},
    },
};

/// The greatest number of audit annotations, and the greatest length of the expression of one.
const MAX_ANNOTATIONS: usize = 20;
const MAX_ANNOTATION: usize = 5 << 10;

/// Checks a policy.
pub(super) fn validate_policy(phase: Phase, policy: &Value, errors: &mut Errors) {
    let (spec, path) = (&policy["spec"], &Path::new("spec"));
    validate_enum(spec, "failurePolicy", &["Fail", "Ignore"], path, errors);
    if let Some(kind) = field(spec, "paramKind") {
        validate_parameter_kind(kind, &path.child("paramKind"), errors);
    }
    let at = path.child("matchConstraints");
    match field(spec, "matchConstraints") {
        None => errors.required(&at, ""),
        Some(constraints) => {
            validate_match_resources(constraints, &at, errors);
            if items(constraints, "resourceRules").is_empty() {
                errors.required(&at.child("resourceRules"), "");
            }
            if phase == Phase::Mutating {
                validate_operations(constraints, &at, errors);
            }
        }
    }
    // Match conditions can't use composed variables, which aren't declared yet.
    let mut declarations = PolicyDeclarations::of_policy(field(spec, "paramKind").is_some());
    validate_match_conditions(spec, &declarations, &path.child("matchConditions"), errors);
    if phase == Phase::Mutating {
        declarations.compose();
    }
    let at = path.child("variables");
    for (index, variable) in items(spec, "variables").iter().enumerate() {
        validate_variable(variable, &mut declarations, &at.index(index), errors);
    }
    match phase {
        Phase::Validating => validate_validations(policy, &declarations, path, errors),
        Phase::Mutating => validate_mutations(spec, &declarations.with_messages(), path, errors),
    }
}

/// Checks the status of a policy.
pub(super) fn validate_status(policy: &Value, errors: &mut Errors) {
    validate_warnings(policy, errors);
    validate_conditions(items(&policy["status"], "conditions"), &Path::new("status.conditions"), errors);
}

fn validate_warnings(policy: &Value, errors: &mut Errors) {
    let path = Path::new("status.typeChecking.expressionWarnings");
    for (index, warning) in items(&policy["status"]["typeChecking"], "expressionWarnings").iter().enumerate() {
        let path = path.index(index);
        for name in ["warning", "fieldRef"] {
            if string(warning, name).trim().is_empty() {
                errors.required(&path.child(name), "");
            }
        }
    }
}

/// Checks a binding.
pub(super) fn validate_binding(phase: Phase, binding: &Value, errors: &mut Errors) {
    let (spec, path) = (&binding["spec"], &Path::new("spec"));
    let at = path.child("policyName");
    validate_required_name(string(spec, "policyName"), name::dns1123_subdomain, &at, errors);
    if let Some(reference) = field(spec, "paramRef") {
        validate_parameter_reference(reference, &path.child("paramRef"), errors);
    }
    if let Some(resources) = field(spec, "matchResources") {
        let path = path.child("matchResources");
        validate_match_resources(resources, &path, errors);
        if phase == Phase::Mutating {
            validate_operations(resources, &path, errors);
        }
    }
    if phase == Phase::Validating {
        validate_actions(spec, &path.child("validationActions"), errors);
    }
}

fn validate_parameter_kind(of: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (sent, at) = (string(of, "apiVersion"), path.child("apiVersion"));
    let (group, version) = sent.split_once('/').unwrap_or(("", sent));
    if sent.is_empty() {
        errors.required(&at, "");
    } else if version.contains('/') {
        errors.invalid(&at, sent, &format!("unexpected GroupVersion string: {sent}"));
    } else {
        let wrong = name::dns1123_subdomain(group);
        if !group.is_empty() && !wrong.is_empty() {
            errors.invalid(&at, group, &wrong.join(","));
        }
        let wrong = name::dns1035_label(version);
        if version.is_empty() {
            errors.invalid(&at, sent, "version must be specified");
        } else if !wrong.is_empty() {
            errors.invalid(&at, version, &wrong.join(","));
        }
    }
    let (kind, at) = (string(of, "kind"), path.child("kind"));
    let wrong = name::dns1035_label(&kind.to_lowercase());
    if kind.is_empty() {
        errors.required(&at, "");
    } else if !wrong.is_empty() {
        errors.invalid(&at, kind, &format!("may have mixed case, but should otherwise match: {}", wrong.join(",")));
    }
}

fn validate_match_resources(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_enum(resources, "matchPolicy", &["Equivalent", "Exact"], path, errors);
    for name in ["namespaceSelector", "objectSelector"] {
        validate_label_selector(&resources[name], &path.child(name), errors);
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        let path = path.child(list);
        for (index, rule) in items(resources, list).iter().enumerate() {
            let path = path.index(index);
            let at = path.child("resourceNames");
            let mut seen = Vec::new();
            for (index, name) in strings(rule, "resourceNames").enumerate() {
                validate_text(name, name::path_segment, &at.index(index), errors);
                if seen.contains(&name) {
                    errors.duplicate(&at.index(index), name);
                }
                seen.push(name);
            }
            validate_rule_with_operations(rule, &path, errors);
        }
    }
}

/// Checks that no deletions are changed.
fn validate_operations(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];
    let path = path.child("resourceRules");
    let path = path.child("operations");
    for rule in items(resources, "resourceRules") {
        for operation in strings(rule, "operations").filter(|operation| !OPERATIONS.contains(operation)) {
            errors.not_supported(&path, operation, OPERATIONS);
        }
    }
}

/// Checks an expression by `check`. `missing` is the reason why it must not be empty.
fn validate_expression(
    expression: &str,
    missing: &str,
    check: impl FnOnce(&str) -> Result<(), Refusal>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if expression.trim().is_empty() {
        errors.required(path, missing);
    } else if let Err(why) = check(expression) {
        errors.refused(path, expression, why);
    }
}

/// Returns whether a text is an identifier of CEL.
fn is_identifier(text: &str) -> bool {
    const RESERVED: &[&str] = &[
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !RESERVED.contains(&text)
}

/// Checks a composed variable, and declares it for the expressions after it.
fn validate_variable(variable: &Value, declarations: &mut PolicyDeclarations, path: &Path<'_>, errors: &mut Errors) {
    let (name, at) = (string(variable, "name"), path.child("name"));
    if name.trim().is_empty() {
        errors.required(&at, "name is not specified");
    } else if !is_identifier(name) {
        errors.invalid(&at, name, "must be a valid CEL identifier");
    }
    let expression = string(variable, "expression");
    let missing = "expression is not specified";
    let check = |text: &str| declarations.declare(name, text);
    validate_expression(expression, missing, check, &path.child("expression"), errors);
}

fn validate_validations(policy: &Value, declarations: &PolicyDeclarations, path: &Path<'_>, errors: &mut Errors) {
    let spec = &policy["spec"];
    let (validations, annotations) = (items(spec, "validations"), items(spec, "auditAnnotations"));
    let at = path.child("auditAnnotations");
    if validations.is_empty() && annotations.is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        errors.required(&path.child("validations"), why);
        errors.required(&at, why);
        return;
    }
    let place = path.child("validations");
    for (index, validation) in validations.iter().enumerate() {
        validate_validation(validation, declarations, &place.index(index), errors);
    }
    if annotations.len() > MAX_ANNOTATIONS {
        // The names are those of Go's fields.
        let shown = |one: &Value| json!({"Key": string(one, "key"), "ValueExpression": string(one, "valueExpression")});
        let shown: Vec<_> = annotations.iter().map(shown).collect();
        errors.invalid(&at, shown, &format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations"));
    }
    let mut keys = Vec::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let at = at.index(index);
        let (key, expression) = (string(annotation, "key"), string(annotation, "valueExpression"));
        let whole = format!("{}/{key}", string(&policy["metadata"], "name"));
        validate_text(&whole, name::label_key, &at.child("key"), errors);
        if expression.trim().len() > MAX_ANNOTATION {
            let why = format!("must not exceed {MAX_ANNOTATION} bytes in length");
            errors.required(&at.child("valueExpression"), &why);
        } else {
            let missing = "valueExpression is not specified";
            let check = |text: &str| declarations.check(text, Expected::StringOrNull);
            validate_expression(expression, missing, check, &at.child("valueExpression"), errors);
        }
        if keys.contains(&key) {
            errors.duplicate(&at.child("key"), key);
        }
        keys.push(key);
    }
}

fn validate_validation(validation: &Value, declarations: &PolicyDeclarations, path: &Path<'_>, errors: &mut Errors) {
    const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];
    let expression = string(validation, "expression");
    let check = |text: &str| declarations.check(text, Expected::Bool);
    validate_expression(expression, "expression is not specified", check, &path.child("expression"), errors);
    let (words, at) = (string(validation, "messageExpression"), path.child("messageExpression"));
    if !words.is_empty() && words.trim().is_empty() {
        errors.invalid(&at, words, "must be non-empty if specified");
    } else if !words.is_empty() {
        let check = |text: &str| declarations.without_authorizer().check(text, Expected::String);
        validate_expression(words, "", check, &at, errors);
    }
    let (message, at) = (string(validation, "message"), path.child("message"));
    if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(&at, message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        errors.invalid(&at, message, "must not contain line breaks");
    }
    validate_enum(validation, "reason", REASONS, path, errors);
}

fn validate_mutations(spec: &Value, declarations: &PolicyDeclarations, path: &Path<'_>, errors: &mut Errors) {
    let (mutations, at) = (items(spec, "mutations"), path.child("mutations"));
    if mutations.is_empty() {
        errors.required(&at, "mutations must contain at least one item");
    }
    for (index, mutation) in mutations.iter().enumerate() {
        validate_mutation(mutation, declarations, &at.index(index), errors);
    }
    const POLICIES: &[&str] = &["IfNeeded", "Never"];
    let at = path.child("reinvocationPolicy");
    match string(spec, "reinvocationPolicy") {
        "" => errors.required(&at, ""),
        policy if POLICIES.contains(&policy) => {}
        other => errors.not_supported(&at, other, POLICIES),
    }
}

fn validate_mutation(mutation: &Value, declarations: &PolicyDeclarations, path: &Path<'_>, errors: &mut Errors) {
    const PATCHES: [(&str, &str); 2] = [("ApplyConfiguration", "applyConfiguration"), ("JSONPatch", "jsonPatch")];
    let (kind, at) = (string(mutation, "patchType"), path.child("patchType"));
    let Some((_, own)) = PATCHES.iter().find(|(known, _)| *known == kind) else {
        return match kind {
            "" => errors.required(&at, ""),
            other => errors.not_supported(&at, other, &["ApplyConfiguration", "JSONPatch"]),
        };
    };
    let at = path.child(own);
    let expected = if kind == "JSONPatch" { Expected::Patches } else { Expected::Object };
    match field(mutation, own) {
        None => errors.required(&at, &format!("must be specified when patchType is {kind}")),
        Some(patch) => {
            let (expression, at) = (string(patch, "expression"), at.child("expression"));
            if expression.trim().is_empty() {
                errors.required(&at, "");
            } else if let Err(why) = declarations.check(expression, expected) {
                errors.refused(&at, expression, why);
            }
        }
    }
    for (_, other) in PATCHES.iter().filter(|(_, other)| other != own && field(mutation, other).is_some()) {
        let why = format!("must not be specified when patchType is {kind}");
        errors.invalid(&path.child(other), format!("{{{other}}}"), &why);
    }
}

fn validate_parameter_reference(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    const ACTIONS: &[&str] = &["Deny", "Allow"];
    let (name, selector) = (string(reference, "name"), field(reference, "selector"));
    if !name.is_empty() {
        validate_text(name, name::path_segment, &path.child("name"), errors);
        if selector.is_some() {
            errors.forbidden(&path.child("name"), "name and selector are mutually exclusive");
        }
    }
    if let Some(selector) = selector {
        validate_label_selector(selector, &path.child("selector"), errors);
        if !name.is_empty() {
            errors.forbidden(&path.child("selector"), "name and selector are mutually exclusive");
        }
    } else if name.is_empty() {
        errors.required(path, "one of name or selector must be specified");
    }
    let at = path.child("parameterNotFoundAction");
    match optional_string(reference, "parameterNotFoundAction") {
        None | Some("") => errors.required(&at, ""),
        Some(action) if ACTIONS.contains(&action) => {}
        Some(other) => errors.not_supported(&at, other, ACTIONS),
    }
}

fn validate_actions(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const ACTIONS: &[&str] = &["Audit", "Deny", "Warn"];
    let mut seen = Vec::new();
    for (index, action) in strings(spec, "validationActions").enumerate() {
        if !ACTIONS.contains(&action) {
            errors.not_supported(&path.index(index), action, ACTIONS);
        }
        if seen.contains(&action) {
            errors.duplicate(&path.index(index), action);
        }
        seen.push(action);
    }
    if seen.contains(&"Deny") && seen.contains(&"Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                   response and headers serves no purpose)";
        errors.invalid(path, items(spec, "validationActions").to_vec(), why);
    }
    if seen.is_empty() {
        errors.required(path, "at least one validation action is required");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(validate: impl FnOnce(&mut Errors)) -> Vec<String> {
        Errors::collect(validate).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn policies_are_checked() {
        let rule = json!({"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
        let constraints = json!({"resourceRules": [rule]});
        let validations = json!([{"expression": "object.spec.replicas > 1", "reason": "X"}, {"expression": "1 +"}]);
        let spec = json!({"matchConstraints": constraints, "validations": validations});
        let found = texts(|errors| validate_policy(Phase::Validating, &json!({"spec": spec}), errors));
        assert!(found[0].starts_with("spec.validations[0].reason: Unsupported value: \"X\""), "{found:?}");
        assert!(found[1].starts_with("spec.validations[1].expression: Invalid value: \"1 +\": compilation failed"));
        let mutations = json!([{"patchType": "JSONPatch", "applyConfiguration": {}}]);
        let spec = json!({"matchConstraints": constraints, "mutations": mutations, "reinvocationPolicy": "Never"});
        let found = texts(|errors| validate_policy(Phase::Mutating, &json!({"spec": spec}), errors));
        assert_eq!(
            found,
            [
                "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\", \
                 \"CONNECT\", \"CREATE\", \"UPDATE\"",
                "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
                "spec.mutations[0].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be specified \
                 when patchType is JSONPatch",
            ]
        );
    }

    #[test]
    fn bindings_are_checked() {
        let spec = json!({"policyName": "p", "paramRef": {"name": "a"}, "validationActions": ["Deny", "Deny"]});
        let found = texts(|errors| validate_binding(Phase::Validating, &json!({"spec": spec}), errors));
        assert_eq!(
            found,
            [
                "spec.paramRef.parameterNotFoundAction: Required value",
                "spec.validationActions[1]: Duplicate value: \"Deny\"",
            ]
        );
    }

    #[test]
    fn the_conditions_of_a_policy_are_checked() {
        let policy = json!({"status": {"conditions": [{"type": "A", "status": "True", "reason": "B"}]}});
        let causes = Errors::collect(|errors| validate_status(&policy, errors));
        let expected = "status.conditions[0].lastTransitionTime: Required value";
        assert_eq!(causes.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    }
}
