//! Security contexts of pods and containers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{has_host_network, visit_containers, windows::validate_windows_options};
use crate::registry::builtin::{
    pod::annotations,
    validation::{
        Errors, Path, Shown, boolean, entries, field, items, optional_int, optional_string, string, validate_id,
        validate_local_descending_path,
    },
};

/// Checks `securityContext` of a pod. `path` is that of its spec.
pub(super) fn validate_pod_security_context(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    // In Kubernetes, these fields belong to the security context, which is always there.
    let at = path.child("securityContext");
    let empty = json!({});
    let security = field(spec, "securityContext").unwrap_or(&empty);
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        if let Some(id) = optional_int(security, name) {
            validate_id(id, &at.child(name), errors);
        }
    }
    let groups = at.child("supplementalGroups");
    for (index, group) in items(security, "supplementalGroups").iter().enumerate() {
        validate_id(group.as_i64().unwrap_or_default(), &groups.index(index), errors);
    }
    if boolean(spec, "shareProcessNamespace") && boolean(spec, "hostPID") {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&at.child("shareProcessNamespace"), true, why);
    }
    validate_sysctls(spec, security, &at.child("sysctls"), errors);
    validate_optional_choice(security, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], &at, errors);
    validate_seccomp_profile(security, &at.child("seccompProfile"), errors);
    if let Some(options) = field(security, "windowsOptions") {
        validate_windows_options(options, &at.child("windowsOptions"), errors);
    }
    validate_app_armor_profile(security, &at.child("appArmorProfile"), errors);
    validate_optional_choice(security, "supplementalGroupsPolicy", &["Merge", "Strict"], &at, errors);
    validate_optional_choice(security, "seLinuxChangePolicy", &["Recursive"], &at, errors);
}

/// Checks a field that is optional and has one of several values.
fn validate_optional_choice(object: &Value, name: &str, allowed: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if let Some(value) = optional_string(object, name).filter(|value| !allowed.contains(value)) {
        errors.not_supported(&path.child(name), value, allowed);
    }
}

fn validate_sysctls(spec: &Value, security: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (index, sysctl) in items(security, "sysctls").iter().enumerate() {
        let path = path.index(index);
        let path = path.child("name");
        let name = string(sysctl, "name");
        if name.is_empty() {
            errors.required(&path, "");
        } else if !is_sysctl_name(name) {
            let segment = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
            let why = format!("must have at most 253 characters and match regex ^({segment}[\\./])*{segment}$");
            errors.invalid(&path, name, &why);
        } else if !names.insert(name) {
            errors.duplicate(&path, name);
        }
        let prefix = name.replace('/', ".");
        if has_host_network(spec) && prefix.starts_with("net.") {
            errors.invalid(&path, name, "may not be specified when 'hostNetwork' is true");
        } else if boolean(spec, "hostIPC") && (prefix.starts_with("kernel.sem") || prefix.starts_with("fs.mqueue.")) {
            errors.invalid(&path, name, "may not be specified when 'hostIPC' is true");
        }
    }
}

fn is_sysctl_name(name: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let segment = |segment: &str| match segment.as_bytes() {
        [] => false,
        [one] => alphanumeric(one),
        [first, middle @ .., last] => {
            alphanumeric(first)
                && alphanumeric(last)
                && middle.iter().all(|byte| alphanumeric(byte) || matches!(byte, b'-' | b'_'))
        }
    };
    name.len() <= 253 && name.split(['.', '/']).all(segment)
}

fn validate_seccomp_profile(security: &Value, path: &Path<'_>, errors: &mut Errors) {
    const TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
    let Some(profile) = field(security, "seccompProfile") else { return };
    let kind = string(profile, "type");
    match kind {
        "" => errors.required(&path.child("type"), "type is required when seccompProfile is set"),
        kind if TYPES.contains(&kind) => {}
        kind => errors.not_supported(&path.child("type"), kind, TYPES),
    }
    let at = path.child("localhostProfile");
    match optional_string(profile, "localhostProfile") {
        None if kind == "Localhost" => errors.required(&at, "must be set when seccomp type is Localhost"),
        Some(file) if kind == "Localhost" => validate_local_descending_path(file, &at, errors),
        Some(file) => {
            errors.invalid(&at, shown_profile(kind, Some(file)), "can only be set when seccomp type is Localhost");
        }
        None => {}
    }
}

pub(in crate::registry::builtin) fn validate_app_armor_profile(security: &Value, path: &Path<'_>, errors: &mut Errors) {
    const TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
    const LIMIT: usize = 4095;
    let Some(profile) = field(security, "appArmorProfile") else { return };
    let (file, at) = (optional_string(profile, "localhostProfile"), path.child("localhostProfile"));
    match string(profile, "type") {
        "Localhost" => {
            let file = file.unwrap_or_default();
            if file.trim() != file {
                errors.invalid(&at, file, "must not be padded with whitespace");
            } else if file.is_empty() {
                errors.required(&at, "must be set when AppArmor type is Localhost");
            }
            if file.len() > LIMIT {
                errors.too_long(&at, LIMIT);
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if let Some(file) = file {
                errors.invalid(&at, file, "can only be set when AppArmor type is Localhost");
            }
        }
        "" => errors.required(&path.child("type"), "type is required when appArmorProfile is set"),
        other => errors.not_supported(&path.child("type"), other, TYPES),
    }
}

/// Checks `securityContext` of a container.
pub(super) fn validate_security_context(security: &Value, host_users: bool, path: &Path<'_>, errors: &mut Errors) {
    for name in ["runAsUser", "runAsGroup"] {
        if let Some(id) = optional_int(security, name) {
            validate_id(id, &path.child(name), errors);
        }
    }
    if let Some(mount) = optional_string(security, "procMount") {
        if !["Default", "Unmasked"].contains(&mount) {
            errors.not_supported(&path.child("procMount"), mount, &["Default", "Unmasked"]);
        }
        if host_users && mount == "Unmasked" {
            errors.invalid(&path.child("procMount"), mount, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    validate_seccomp_profile(security, &path.child("seccompProfile"), errors);
    if security["allowPrivilegeEscalation"] == false {
        if boolean(security, "privileged") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid(path, internal(security), why);
        }
        for _ in items(&security["capabilities"], "add").iter().filter(|name| **name == "CAP_SYS_ADMIN") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.invalid(path, internal(security), why);
        }
    }
    if let Some(options) = field(security, "windowsOptions") {
        validate_windows_options(options, &path.child("windowsOptions"), errors);
    }
    validate_app_armor_profile(security, &path.child("appArmorProfile"), errors);
}

/// Shows a profile for seccomp or AppArmor in the form of Kubernetes' internal type.
fn shown_profile(kind: &str, file: Option<&str>) -> Shown {
    let file = file.map_or_else(|| Shown::from(Value::Null), Shown::from);
    Shown::object([("Type", kind.into()), ("LocalhostProfile", file)])
}

/// Shows a container's security context in the form of Kubernetes' internal type.
fn internal(security: &Value) -> Shown {
    let plain = |name| Shown::nullable(security.get(name));
    let profile = |name| {
        let profile = field(security, name);
        let file = |profile| optional_string(profile, "localhostProfile");
        profile
            .map_or_else(|| Shown::from(Value::Null), |profile| shown_profile(string(profile, "type"), file(profile)))
    };
    let capabilities = field(security, "capabilities").map_or_else(
        || Shown::from(Value::Null),
        |set| Shown::object([("Add", Shown::nullable(set.get("add"))), ("Drop", Shown::nullable(set.get("drop")))]),
    );
    Shown::object([
        ("Capabilities", capabilities),
        ("Privileged", plain("privileged")),
        ("SELinuxOptions", plain("seLinuxOptions")),
        ("WindowsOptions", plain("windowsOptions")),
        ("RunAsUser", plain("runAsUser")),
        ("RunAsGroup", plain("runAsGroup")),
        ("RunAsNonRoot", plain("runAsNonRoot")),
        ("ReadOnlyRootFilesystem", plain("readOnlyRootFilesystem")),
        ("AllowPrivilegeEscalation", plain("allowPrivilegeEscalation")),
        ("ProcMount", plain("procMount")),
        ("SeccompProfile", profile("seccompProfile")),
        ("AppArmorProfile", profile("appArmorProfile")),
    ])
}

/// Checks that a pod with users of its own shares nothing else with its node.
pub(super) fn validate_host_users(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const WHY: &str = "when `hostUsers` is false";
    if spec["hostUsers"] != false {
        return;
    }
    for (name, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if boolean(spec, name) {
            errors.forbidden(&path.child(shown), WHY);
        }
    }
    visit_containers(spec, path, |container, path| {
        if !items(container, "volumeDevices").is_empty() {
            errors.forbidden(&path.child("volumeDevices"), WHY);
        }
    });
}

/// Checks the annotations that preceded the fields for seccomp and AppArmor.
pub(super) fn validate_seccomp_and_app_armor_annotations(pod: &Value, path: &Path<'_>, errors: &mut Errors) {
    let annotations =
        || entries(&pod["metadata"], "annotations").map(|(key, value)| (key, value.as_str().unwrap_or_default()));
    for (key, profile) in
        annotations().filter(|(key, _)| *key == annotations::SECCOMP || key.starts_with(annotations::CONTAINER_SECCOMP))
    {
        match profile {
            "runtime/default" | "docker/default" | "unconfined" => {}
            _ => match profile.strip_prefix("localhost/") {
                Some(file) => validate_local_descending_path(file, &path.child(key), errors),
                None => errors.invalid(&path.child(key), profile, "must be a valid seccomp profile"),
            },
        }
    }
    for (key, profile) in annotations() {
        let Some(container) = key.strip_prefix(annotations::APP_ARMOR) else { continue };
        let mut found = false;
        visit_containers(&pod["spec"], path, |other, _| found |= string(other, "name") == container);
        if !found {
            errors.invalid(&path.key(key), container, "container not found");
        }
        if !matches!(profile, "" | "runtime/default" | "unconfined") && !profile.starts_with("localhost/") {
            errors.invalid(&path.key(key), profile, &format!("invalid AppArmor profile name: {profile:?}"));
        }
    }
}
