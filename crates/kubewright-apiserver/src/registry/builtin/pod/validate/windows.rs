//! Operating systems, and the security options of Windows.

use serde_json::Value;

use super::{has_host_network, visit_containers};
use crate::registry::builtin::validation::{
    Errors, Path, boolean, field, items, optional_string, string, validate_text,
};

/// Checks the security options for containers on Windows.
pub(super) fn validate_windows_options(options: &Value, path: &Path<'_>, errors: &mut Errors) {
    const LIMIT: usize = 64 * 1024;
    if let Some(name) = optional_string(options, "gmsaCredentialSpecName") {
        let rule = kubewright_apimachinery::name::dns1123_subdomain;
        validate_text(name, rule, &path.child("gmsaCredentialSpecName"), errors);
    }
    let at = path.child("gmsaCredentialSpec");
    match optional_string(options, "gmsaCredentialSpec") {
        Some("") => errors.invalid(&at, "", "gmsaCredentialSpec cannot be an empty string"),
        Some(spec) if spec.len() > LIMIT => errors.invalid(&at, spec, "gmsaCredentialSpec size must be under 64 KiB"),
        _ => {}
    }
    if let Some(name) = optional_string(options, "runAsUserName") {
        validate_user_name(name, &path.child("runAsUserName"), errors);
    }
}

fn validate_user_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let mut wrong = |why: &str| errors.invalid(path, name, &format!("runAsUserName{why}"));
    if name.is_empty() {
        return wrong(" cannot be an empty string");
    }
    if name.chars().any(char::is_control) {
        return wrong(" cannot contain control characters");
    }
    let parts: Vec<_> = name.split('\\').collect();
    let (domain, user) = match parts[..] {
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return wrong(" cannot contain more than one backslash"),
    };
    if let Some(domain) = domain {
        if domain.len() >= 256 {
            wrong("'s Domain length must be under 256 characters");
        }
        let dns = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        let short = !domain.is_empty()
            && domain.len() <= 15
            && !domain.contains(['\\', '/', ':', '*', '?', '<', '>', '|', '"']);
        if !short && (domain.is_empty() || !domain.bytes().all(dns)) {
            wrong("'s Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        wrong("'s User cannot be empty");
    } else if user.len() > 104 {
        wrong("'s User length must not be longer than 104 characters");
    }
    if user.chars().all(|c| c == '.' || c == ' ') && !user.is_empty() {
        wrong("'s User cannot contain only periods or spaces");
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        wrong("'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
}

/// Returns whether containers with these options are processes of the node, if the options say so.
fn host_process(security: &Value) -> Option<bool> {
    security["windowsOptions"]["hostProcess"].as_bool()
}

/// Checks that either all or none of the containers are processes of the node.
pub(super) fn validate_host_process_pod(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let of_pod = host_process(&spec["securityContext"]);
    let (mut all, mut processes) = (0, 0);
    visit_containers(spec, path, |container, path| {
        all += 1;
        let own = host_process(&container["securityContext"]);
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let why = format!("pod hostProcess value must be identical if both are specified, was {of_pod}");
            let path = path.child("securityContext");
            let path = path.child("windowsOptions");
            errors.invalid(&path.child("hostProcess"), own, &why);
        }
        processes += usize::from(own.or(of_pod) == Some(true));
    });
    if processes == 0 {
        return;
    }
    if processes != all {
        let why = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(path, "", why);
    }
    if !has_host_network(spec) {
        let why = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&path.child("hostNetwork"), false, why);
    }
}

/// Checks the operating system, and that no field of another one is set.
pub(super) fn validate_os(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(os) = field(spec, "os") else { return };
    let at = path.child("os");
    match string(os, "name") {
        "" => errors.required(&at.child("name"), ""),
        "linux" => validate_linux(spec, path, errors),
        "windows" => validate_windows(spec, path, errors),
        other => errors.not_supported(&at, other, &["linux", "windows"]),
    }
}

fn validate_linux(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const WHY: &str = "windows options cannot be set for a linux pod";
    if field(&spec["securityContext"], "windowsOptions").is_some() {
        let path = path.child("securityContext");
        errors.forbidden(&path.child("windowsOptions"), WHY);
    }
    visit_containers(spec, path, |container, path| {
        if field(&container["securityContext"], "windowsOptions").is_some() {
            let path = path.child("securityContext");
            errors.forbidden(&path.child("windowsOptions"), WHY);
        }
    });
}

/// The fields of a pod, and of its security context, that don't apply to Windows, in the order of their check.
const NOT_WINDOWS: &[(bool, &str)] = &[
    (false, "appArmorProfile"),
    (false, "seLinuxOptions"),
    (true, "hostUsers"),
    (true, "hostPID"),
    (true, "hostIPC"),
    (false, "seccompProfile"),
    (false, "fsGroup"),
    (false, "fsGroupChangePolicy"),
    (false, "sysctls"),
    (true, "shareProcessNamespace"),
    (false, "runAsUser"),
    (false, "runAsGroup"),
    (false, "supplementalGroups"),
    (false, "supplementalGroupsPolicy"),
    (false, "seLinuxChangePolicy"),
];

/// The fields of a container's security context that don't apply to Windows.
const NOT_WINDOWS_CONTAINER: &[&str] = &[
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

fn validate_windows(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const WHY: &str = "cannot be set for a windows pod";
    let security = path.child("securityContext");
    for (of_spec, name) in NOT_WINDOWS {
        let object = if *of_spec { spec } else { &spec["securityContext"] };
        let set = match *name {
            "hostPID" | "hostIPC" => boolean(object, name),
            "sysctls" => !items(object, name).is_empty(),
            _ => field(object, name).is_some(),
        };
        if set {
            errors.forbidden(&if *of_spec { path.child(name) } else { security.child(name) }, WHY);
        }
    }
    visit_containers(spec, path, |container, path| {
        let path = path.child("securityContext");
        for name in NOT_WINDOWS_CONTAINER {
            if field(&container["securityContext"], name).is_some() {
                errors.forbidden(&path.child(name), WHY);
            }
        }
    });
}
