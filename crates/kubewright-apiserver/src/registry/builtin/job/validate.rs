//! Validation of jobs.

use std::collections::BTreeSet;

use kubewright_apimachinery::{name, selector::LabelSelector};
use serde_json::{Value, json};

use crate::{
    fields::each,
    registry::builtin::{
        pod::validate_pod_template,
        validation::{
            Errors, Path, Shown, boolean, entry, field, int, items, optional_int, optional_string, string,
            validate_domain_prefixed_path, validate_label_selector, validate_nonnegative, validate_text,
        },
    },
};

const SPEC: Path<'static> = Path::new("spec");

/// Checks a new job.
pub(super) fn validate_job(job: &Value, errors: &mut Errors) {
    validate_generated_selector(job, errors);
    validate_spec(&job["spec"], errors);
    let (spec, name) = (&job["spec"], string(&job["metadata"], "name"));
    let completions = int(spec, "completions");
    if string(spec, "completionMode") == "Indexed" && completions > 0 {
        let host = format!("{name}-{}", completions - 1);
        if !name::dns1123_label(&host).is_empty() {
            let why = format!("will not able to create pod with invalid DNS label: {host}");
            errors.invalid(&Path::new("metadata.name"), name, &why);
        }
    }
}

/// Checks the labels and the selector that the server sets, which a client can only set to the same values.
fn validate_generated_selector(job: &Value, errors: &mut Errors) {
    let spec = &job["spec"];
    let Some(selector) = field(spec, "selector").filter(|_| !boolean(spec, "manualSelector")) else { return };
    let (uid, name) = (string(&job["metadata"], "uid"), string(&job["metadata"], "name"));
    let path = Path::new("spec.template.metadata");
    let labels = path.child("labels");
    let mut expected = serde_json::Map::new();
    for prefix in ["", "batch.kubernetes.io/"] {
        for (key, value) in [("controller-uid", uid), ("job-name", name)] {
            let key = format!("{prefix}{key}");
            match entry(&spec["template"]["metadata"], "labels", &key) {
                None => errors.required(&labels.key(&key), &format!("must be '{value}'")),
                Some(actual) if actual != value => {
                    let shown = spec["template"]["metadata"]["labels"].clone();
                    errors.invalid(&labels.key(&key), shown, &format!("must be '{value}'"));
                }
                Some(_) => {}
            }
            expected.insert(key, value.into());
        }
    }
    let expected = Value::Object(expected);
    if LabelSelector::from_object(selector).is_ok_and(|selector| !selector.matches_labels(&expected)) {
        errors.invalid(&SPEC.child("selector"), Shown::selector(selector), "`selector` not auto-generated");
    }
}

fn validate_spec(spec: &Value, errors: &mut Errors) {
    validate_job_spec(spec, &SPEC, errors);
    let selector = field(spec, "selector");
    match selector {
        None => errors.required(&SPEC.child("selector"), ""),
        Some(selector) => validate_label_selector(selector, &SPEC.child("selector"), errors),
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let matches = match selector.map(LabelSelector::from_object) {
        None => Some(false),
        Some(parsed) => parsed.ok().map(|selector| selector.matches_labels(labels)),
    };
    if matches == Some(false) {
        let path = Path::new("spec.template.metadata.labels");
        errors.invalid(&path, labels.clone(), "`selector` does not match template `labels`");
    }
}

/// Checks an updated job.
pub(super) fn validate_update(old: &Value, new: &Value, errors: &mut Errors) {
    // Kubernetes checks the spec twice.
    validate_job(new, errors);
    let is_open = has_open_template(old);
    let (old, new) = (&old["spec"], &new["spec"]);
    validate_spec(new, errors);
    validate_completions(old, new, errors);
    if field(old, "selector") != field(new, "selector") {
        errors.invalid(&SPEC.child("selector"), Shown::selector(&new["selector"]), "field is immutable");
    }
    validate_template_update(old, new, is_open, errors);
    for name in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        validate_immutable(old, new, name, errors);
    }
}

fn validate_immutable(old: &Value, new: &Value, name: &str, errors: &mut Errors) {
    if field(old, name) != field(new, name) {
        errors.invalid(&SPEC.child(name), new[name].clone(), "field is immutable");
    }
}

fn validate_completions(old: &Value, new: &Value, errors: &mut Errors) {
    if string(new, "completionMode") != "Indexed" {
        validate_immutable(old, new, "completions", errors);
        return;
    }
    let completions = optional_int(new, "completions");
    if completions.is_some()
        && completions != optional_int(old, "completions")
        && completions != optional_int(new, "parallelism")
    {
        let why = "can only be modified in tandem with spec.parallelism";
        errors.invalid(&SPEC.child("completions"), new["completions"].clone(), why);
    }
}

/// Returns whether the template of a job can change: while it is suspended, and either has not begun or was stopped
/// (`shouldAllowMutablePodTemplate` of Kubernetes' registry).
fn has_open_template(job: &Value) -> bool {
    let status = &job["status"];
    let suspends = |one: &Value| string(one, "type") == "Suspended" && string(one, "status") == "True";
    let stands = field(status, "startTime").is_none() || items(status, "conditions").iter().any(suspends);
    boolean(&job["spec"], "suspend") && stands && int(status, "active") == 0
}

/// Checks that an open template changes only where its pods are scheduled and what they request, and another one not at
/// all.
fn validate_template_update(old: &Value, new: &Value, is_open: bool, errors: &mut Errors) {
    let mut before = old["template"].clone();
    let after = &new["template"];
    if is_open {
        keep_scheduling(&mut before, after);
        for list in ["containers", "initContainers"] {
            let containers = before.get_mut("spec").map(|spec| each(spec, list)).into_iter().flatten();
            for (container, updated) in containers.zip(items(&after["spec"], list)) {
                if container["name"] == updated["name"] {
                    copy(updated, container, "resources");
                }
            }
        }
        if before["spec"] != after["spec"] {
            errors.invalid(&Path::new("spec.template.spec"), after["spec"].clone(), "field is immutable");
        }
    } else if before != *after {
        errors.invalid(&SPEC.child("template"), after.clone(), "field is immutable");
    }
}

/// Copies the fields that determine on which nodes pods run.
fn keep_scheduling(before: &mut Value, after: &Value) {
    for (part, names) in
        [("metadata", &["annotations", "labels"][..]), ("spec", &["nodeSelector", "tolerations", "schedulingGates"])]
    {
        let Some(before) = before.get_mut(part) else { continue };
        names.iter().for_each(|name| copy(&after[part], before, name));
    }
    let affinity = after["spec"]["affinity"]["nodeAffinity"].clone();
    let Some(spec) = before.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let own = spec.entry("affinity").or_insert_with(|| json!({}));
    copy(&json!({"nodeAffinity": affinity}), own, "nodeAffinity");
    let empty = own.as_object().is_some_and(|fields| fields.values().all(Value::is_null));
    if empty {
        spec.remove("affinity");
    } else if let Some(fields) = own.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
}

fn copy(from: &Value, to: &mut Value, name: &str) {
    if let Some(fields) = to.as_object_mut() {
        match from.get(name) {
            Some(value) => fields.insert(name.into(), value.clone()),
            None => fields.remove(name),
        };
    }
}

/// Checks the spec of a job, or of the template of jobs.
pub(super) fn validate_job_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const LIMITS: &[&str] = &[
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    for name in LIMITS {
        validate_nonnegative(int(spec, name), &path.child(name), errors);
    }
    if field(spec, "maxFailedIndexes").is_some() && field(spec, "backoffLimitPerIndex").is_none() {
        errors.required(&path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if let Some(manager) = optional_string(spec, "managedBy") {
        validate_domain_prefixed_path(manager, &path.child("managedBy"), errors);
        if manager.len() > 63 {
            errors.too_long(&path.child("managedBy"), 63);
        }
    }
    validate_completion_mode(spec, path, errors);
    if let Some(policy) = field(spec, "podFailurePolicy") {
        validate_pod_failure_policy(spec, policy, &path.child("podFailurePolicy"), errors);
    }
    if let Some(policy) = field(spec, "successPolicy") {
        let path = path.child("successPolicy");
        if string(spec, "completionMode") == "Indexed" {
            validate_success_policy(spec, policy, &path, errors);
        } else {
            errors.invalid(&path, shown_success_policy(policy), "requires indexed completion mode");
        }
    }
    validate_pod_replacement_policy(spec, &path.child("podReplacementPolicy"), errors);
    validate_pod_template(&spec["template"], &path.child("template"), errors);
    validate_restart_policy(spec, path, errors);
}

fn shown_success_policy(policy: &Value) -> Shown {
    let rules = items(policy, "rules").iter().map(|rule| {
        Shown::object([
            ("SucceededIndexes", Shown::nullable(rule.get("succeededIndexes"))),
            ("SucceededCount", Shown::nullable(rule.get("succeededCount"))),
        ])
    });
    Shown::object([("Rules", Shown::list(rules))])
}

fn validate_restart_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("template");
    let path = path.child("spec");
    let path = path.child("restartPolicy");
    match string(&spec["template"]["spec"], "restartPolicy") {
        "Always" | "" => errors.required(&path, "valid values: \"OnFailure\", \"Never\""),
        policy @ ("OnFailure" | "Never") => {
            if policy != "Never" && field(spec, "podFailurePolicy").is_some() {
                errors.invalid(&path, policy, "only \"Never\" is supported when podFailurePolicy is specified");
            }
        }
        other => errors.not_supported(&path, other, &["OnFailure", "Never"]),
    }
}

fn validate_completion_mode(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const INDEXES: i64 = 100_000;
    const MANY: i64 = 10_000;
    let mode = optional_string(spec, "completionMode");
    if let Some(mode) = mode.filter(|mode| !["NonIndexed", "Indexed"].contains(mode)) {
        errors.not_supported(&path.child("completionMode"), mode, &["NonIndexed", "Indexed"]);
    }
    let (completions, parallelism) = (optional_int(spec, "completions"), optional_int(spec, "parallelism"));
    let failed = optional_int(spec, "maxFailedIndexes");
    let at = path.child("maxFailedIndexes");
    if mode == Some("Indexed") {
        if completions.is_none() {
            errors.required(&path.child("completions"), "when completion mode is Indexed");
        }
        if let Some(number) = parallelism.filter(|number| *number > INDEXES) {
            let why = format!("must be less than or equal to {INDEXES} when completion mode is Indexed");
            errors.invalid(&path.child("parallelism"), number, &why);
        }
        if let (Some(completions), Some(failed)) = (completions, failed)
            && failed > completions
        {
            errors.invalid(&at, failed, "must be less than or equal to completions");
        }
        if let Some(failed) = failed.filter(|failed| *failed > INDEXES) {
            errors.invalid(&at, failed, &format!("must be less than or equal to {INDEXES}"));
        }
        if completions.is_some_and(|number| number > INDEXES) && field(spec, "backoffLimitPerIndex").is_some() {
            let why = format!(
                "must be less than or equal to {MANY} when completions are above {INDEXES} and used with backoff limit \
                 per index"
            );
            if failed.is_none() {
                errors.required(&at, &format!("must be specified when completions is above {INDEXES}"));
            }
            if let Some(number) = parallelism.filter(|number| *number > MANY) {
                errors.invalid(&path.child("parallelism"), number, &why);
            }
            if let Some(failed) = failed.filter(|failed| *failed > MANY) {
                errors.invalid(&at, failed, &why);
            }
        }
    }
    if matches!(mode, None | Some("NonIndexed")) {
        for name in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(number) = optional_int(spec, name) {
                errors.invalid(&path.child(name), number, "requires indexed completion mode");
            }
        }
    }
}

fn validate_pod_replacement_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(policy) = optional_string(spec, "podReplacementPolicy") else { return };
    let allowed: &[&str] =
        if field(spec, "podFailurePolicy").is_some() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if !allowed.contains(&policy) {
        errors.not_supported(path, policy, allowed);
    }
}

fn validate_pod_failure_policy(spec: &Value, policy: &Value, path: &Path<'_>, errors: &mut Errors) {
    const RULES: usize = 20;
    let (rules, path) = (items(policy, "rules"), path.child("rules"));
    if rules.len() > RULES {
        errors.too_many(&path, rules.len(), RULES);
    }
    let pod = &spec["template"]["spec"];
    let containers = items(pod, "containers").iter().chain(items(pod, "initContainers"));
    let names: BTreeSet<_> = containers.map(|container| string(container, "name")).collect();
    for (index, rule) in rules.iter().enumerate() {
        validate_failure_rule(spec, rule, &names, &path.index(index), errors);
    }
}

fn validate_failure_rule(
    spec: &Value,
    rule: &Value,
    containers: &BTreeSet<&str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
    let at = path.child("action");
    match string(rule, "action") {
        "" => errors.required(&at, &valid_values(ACTIONS)),
        "FailIndex" if field(spec, "backoffLimitPerIndex").is_none() => {
            errors.invalid(&at, "FailIndex", "requires the backoffLimitPerIndex to be set");
        }
        action if ACTIONS.contains(&action) => {}
        other => errors.not_supported(&at, other, ACTIONS),
    }
    let (codes, conditions) = (field(rule, "onExitCodes"), items(rule, "onPodConditions"));
    if let Some(codes) = codes {
        validate_exit_codes(codes, containers, &path.child("onExitCodes"), errors);
    }
    validate_pod_conditions(conditions, &path.child("onPodConditions"), errors);
    if codes.is_some() && !conditions.is_empty() {
        errors.invalid_without_value(path, "specifying both OnExitCodes and OnPodConditions is not supported");
    }
    if codes.is_none() && conditions.is_empty() {
        errors.invalid_without_value(path, "specifying one of OnExitCodes and OnPodConditions is required");
    }
}

fn valid_values(values: &[&str]) -> String {
    let quoted: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

fn validate_pod_conditions(conditions: &[Value], path: &Path<'_>, errors: &mut Errors) {
    const LIMIT: usize = 20;
    const STATUSES: &[&str] = &["False", "True", "Unknown"];
    if conditions.len() > LIMIT {
        errors.too_many(path, conditions.len(), LIMIT);
    }
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        validate_text(string(condition, "type"), name::label_key, &path.child("type"), errors);
        match string(condition, "status") {
            "" => errors.required(&path.child("status"), &valid_values(STATUSES)),
            status if STATUSES.contains(&status) => {}
            other => errors.not_supported(&path.child("status"), other, STATUSES),
        }
    }
}

fn validate_exit_codes(codes: &Value, containers: &BTreeSet<&str>, path: &Path<'_>, errors: &mut Errors) {
    const LIMIT: usize = 255;
    const OPERATORS: &[&str] = &["In", "NotIn"];
    let operator = string(codes, "operator");
    match operator {
        "" => errors.required(&path.child("operator"), &valid_values(OPERATORS)),
        operator if OPERATORS.contains(&operator) => {}
        other => errors.not_supported(&path.child("operator"), other, OPERATORS),
    }
    if let Some(name) = optional_string(codes, "containerName").filter(|name| !containers.contains(name)) {
        let why = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&path.child("containerName"), name, why);
    }
    let (values, path) = (items(codes, "values"), path.child("values"));
    if values.is_empty() {
        let shown = codes.get("values").cloned().unwrap_or_default();
        errors.invalid(&path, shown, "at least one value is required");
    } else if values.len() > LIMIT {
        errors.too_many(&path, values.len(), LIMIT);
    }
    let mut seen = BTreeSet::new();
    let mut ordered = true;
    let mut last = i64::MIN;
    for (index, value) in values.iter().map(|value| value.as_i64().unwrap_or_default()).enumerate() {
        if operator == "In" && value == 0 {
            errors.invalid(&path.index(index), value, "must not be 0 for the In operator");
        }
        if !seen.insert(value) {
            errors.duplicate(&path.index(index), value);
        }
        ordered &= last <= value;
        last = value;
    }
    if !ordered {
        errors.invalid(&path, values.to_vec(), "must be ordered");
    }
}

fn validate_success_policy(spec: &Value, policy: &Value, path: &Path<'_>, errors: &mut Errors) {
    const RULES: usize = 20;
    let (rules, path) = (items(policy, "rules"), path.child("rules"));
    if rules.is_empty() {
        errors.required(&path, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > RULES {
        errors.too_many(&path, rules.len(), RULES);
    }
    let completions = int(spec, "completions");
    for (index, rule) in rules.iter().enumerate() {
        validate_success_rule(completions, rule, &path.index(index), errors);
    }
}

fn validate_success_rule(completions: i64, rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    const LENGTH: usize = 64 * 1024;
    let (count, indexes) = (optional_int(rule, "succeededCount"), optional_string(rule, "succeededIndexes"));
    if count.is_none() && indexes.is_none() {
        errors.required(path, "at least one of succeededCount or succeededIndexes must be specified");
    }
    let mut total = 0;
    if let Some(text) = indexes {
        let at = path.child("succeededIndexes");
        if text.len() > LENGTH {
            errors.too_long(&at, LENGTH);
        }
        match count_indexes(text, completions) {
            Ok(number) => total = number,
            Err(why) => errors.invalid(&at, text, &format!("error parsing succeededIndexes: {why}")),
        }
    }
    let Some(count) = count else { return };
    let at = path.child("succeededCount");
    validate_nonnegative(count, &at, errors);
    if count > completions {
        let why = format!("must be less than or equal to {completions} (the number of specified completions)");
        errors.invalid(&at, count, &why);
    }
    if indexes.is_some() && count > total {
        let why = format!(
            "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        );
        errors.invalid(&at, count, &why);
    }
}

/// Returns the number of indexes in a text such as `1,3-5`.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let (mut last, mut total) = (None, 0);
    for text in text.split(',') {
        let (first, end) = interval(text, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(order(last, first));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// Returns the error about indexes that don't increase.
fn order(previous: i64, current: i64) -> String {
    format!("non-increasing order, previous: {previous}, current: {current}")
}

/// Parses an index or an interval of indexes.
fn interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let index = |text: &str| {
        let number: i64 = text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if number >= completions { Err(format!("too large index: {text:?}")) } else { Ok(number) }
    };
    match *text.split('-').collect::<Vec<_>>().as_slice() {
        [one] => Ok((index(one)?, index(one)?)),
        [first, end] => {
            let (first, end) = (index(first)?, index(end)?);
            if first >= end { Err(order(first, end)) } else { Ok((first, end)) }
        }
        _ => Err(format!(
            "the fragment {text:?} violates the requirement that an index interval can have at most two parts separated \
             by '-'"
        )),
    }
}

/// Returns the first index that is in both lists of intervals. Malformed intervals are left out.
pub(super) fn common_index(one: &str, other: &str, completions: i64) -> Option<i64> {
    let intervals = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|text| interval(text, completions).ok()).collect()
    };
    let others = intervals(other);
    let overlap = |(first, end): (i64, i64)| {
        let mut found = others.iter().filter(move |other| first <= other.1 && other.0 <= end);
        found.next().map(|other| first.max(other.0))
    };
    intervals(one).into_iter().find_map(overlap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted() {
        assert_eq!(common_index("0,2-4", "1,3-5", 9), Some(3));
        assert_eq!(common_index("0,x,6", "1-5,7", 9), None);
        assert_eq!(count_indexes("0,2-4", 5), Ok(4));
        for (text, why) in [
            ("a", "cannot convert"),
            ("5", "too large"),
            ("1,1", "non-increasing"),
            ("3-2", "non-increasing"),
            ("1-2-3", "the fragment"),
        ] {
            assert!(count_indexes(text, 5).unwrap_err().starts_with(why), "{text}");
        }
    }
}
