//! The checks of pods, with the messages of Kubernetes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::standards::Violation;
use crate::{
    fields::{entries, flag, has, int, list, text},
    registry::builtin::pod::annotations,
};

/// The capabilities of which the baseline level allows to add any.
const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The safe kernel parameters, in the order in which Kubernetes has added them.
const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// The types of volumes that the restricted level allows.
const ALLOWED_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// All other types of volumes.
const RESTRICTED_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

/// A pod, or the template of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pod<'a>(&'a Value);

impl<'a> Pod<'a> {
    pub(super) fn new(pod: &'a Value) -> Self {
        Self(pod)
    }

    /// Returns whether the users in the pod aren't those of the node.
    pub(super) fn has_own_users(&self) -> bool {
        self.0.pointer("/spec/hostUsers") == Some(&Value::Bool(false))
    }

    pub(super) fn is_windows(&self) -> bool {
        text(self.0, "/spec/os/name") == "windows"
    }

    fn containers(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let pod = self.0;
        ["/spec/initContainers", "/spec/containers", "/spec/ephemeralContainers"]
            .into_iter()
            .flat_map(move |kind| list(pod, kind))
    }

    /// Returns the names of the containers that are as described.
    fn named(&self, is_bad: impl FnMut(&&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(is_bad).map(name).collect()
    }

    fn annotation(&self, key: &str) -> Option<&'a str> {
        self.0.pointer("/metadata/annotations").and_then(|annotations| annotations.get(key)).and_then(Value::as_str)
    }
}

fn name(value: &Value) -> &str {
    text(value, "/name")
}

fn violation(reason: &'static str, detail: String) -> Option<Violation> {
    Some(Violation { reason, detail })
}

fn plural(count: usize, one: &'static str, several: &'static str) -> &'static str {
    if count == 1 { one } else { several }
}

/// Formats names as `"a", "b"`.
fn quote(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let quoted: Vec<_> = names.into_iter().map(|name| format!("\"{}\"", name.as_ref())).collect();
    quoted.join(", ")
}

/// Formats containers as `container "a"` or `containers "a", "b"`.
fn containers(names: &[&str]) -> String {
    format!("{} {}", plural(names.len(), "container", "containers"), quote(names))
}

/// Formats who sets something: `pod`, containers, or both. Returns `None` if nobody does.
fn setters(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names) {
        (false, []) => None,
        (true, []) => Some("pod".to_owned()),
        (false, names) => Some(containers(names)),
        (true, names) => Some(format!("pod and {}", containers(names))),
    }
}

pub(super) fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let is_allowed = |profile: &str| matches!(profile, "RuntimeDefault" | "Localhost");
    let mut values = BTreeSet::new();
    let mut is_bad = |value: &Value| {
        let Some(profile) = value.pointer("/securityContext/appArmorProfile") else { return false };
        let profile = text(profile, "/type");
        !is_allowed(profile) && {
            values.insert(profile.to_owned());
            true
        }
    };
    let by_pod = is_bad(&pod.0["spec"]);
    let names = pod.named(|container| is_bad(container));
    let annotations = entries(pod.0, "/metadata/annotations").filter_map(|(key, value)| {
        let value = value.as_str()?;
        let is_allowed = value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
        (key.starts_with(annotations::APP_ARMOR) && !is_allowed).then(|| format!("{key}={value:?}"))
    });
    let mut annotations: Vec<_> = annotations.collect();
    annotations.sort();
    let mut setters: Vec<_> = setters(by_pod, &names).into_iter().collect();
    if !annotations.is_empty() {
        setters.push(plural(annotations.len(), "annotation", "annotations").to_owned());
    }
    if setters.is_empty() {
        return None;
    }
    let values: Vec<_> = values.into_iter().chain(annotations).collect();
    violation(
        plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles"),
        format!("{} must not set AppArmor profile type to {}", setters.join(" and "), quote(values)),
    )
}

pub(super) fn baseline_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let (names, added) = added_capabilities(pod, |capability| DEFAULT_CAPABILITIES.contains(&capability));
    let who = setters(false, &names)?;
    violation(
        "non-default capabilities",
        format!("{who} must not include {} in securityContext.capabilities.add", quote(added)),
    )
}

/// Returns the containers that add capabilities which aren't allowed, and these.
fn added_capabilities<'a>(pod: &Pod<'a>, is_allowed: impl Fn(&str) -> bool) -> (Vec<&'a str>, BTreeSet<&'a str>) {
    let mut added = BTreeSet::new();
    let names = pod.named(|container| {
        let add = list(container, "/securityContext/capabilities/add").iter().filter_map(Value::as_str);
        let forbidden: Vec<_> = add.filter(|capability| !is_allowed(capability)).collect();
        added.extend(forbidden.iter().copied());
        !forbidden.is_empty()
    });
    (names, added)
}

pub(super) fn restricted_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let keeping = pod.named(|container| {
        !list(container, "/securityContext/capabilities/drop").iter().any(|capability| capability == "ALL")
    });
    let (adding, added) = added_capabilities(pod, |capability| capability == "NET_BIND_SERVICE");
    let keeping =
        setters(false, &keeping).map(|who| format!("{who} must set securityContext.capabilities.drop=[\"ALL\"]"));
    let adding = setters(false, &adding)
        .map(|who| format!("{who} must not include {} in securityContext.capabilities.add", quote(added)));
    let details: Vec<_> = keeping.into_iter().chain(adding).collect();
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

pub(super) fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"];
    let shared = shared.into_iter().filter(|field| flag(pod.0, &format!("/spec/{field}")));
    let shared: Vec<_> = shared.map(|field| format!("{field}=true")).collect();
    if shared.is_empty() { None } else { violation("host namespaces", shared.join(", ")) }
}

pub(super) fn host_paths(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = list(pod.0, "/spec/volumes").iter().filter(|volume| has(volume, "/hostPath"));
    let volumes: Vec<_> = volumes.map(name).collect();
    if volumes.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", plural(volumes.len(), "volume", "volumes"), quote(volumes)))
}

pub(super) fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let names = pod.named(|container| {
        let used = list(container, "/ports").iter().map(|port| int(port, "/hostPort")).filter(|port| *port != 0);
        let used: Vec<_> = used.map(|port| port.to_string()).collect();
        let is_bad = !used.is_empty();
        ports.extend(used);
        is_bad
    });
    let who = setters(false, &names)?;
    let (uses, what) = (plural(names.len(), "uses", "use"), plural(ports.len(), "hostPort", "hostPorts"));
    violation("hostPort", format!("{who} {uses} {what} {}", ports.into_iter().collect::<Vec<_>>().join(", ")))
}

pub(super) fn hosts_of_probes(pod: &Pod<'_>) -> Option<Violation> {
    let handlers = ["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/postStart", "/lifecycle/preStop"];
    let mut hosts = BTreeSet::new();
    let mut names = pod.named(|container| {
        let used = handlers.iter().filter_map(|handler| container.pointer(handler)).flat_map(|handler| {
            ["/httpGet/host", "/tcpSocket/host"]
                .map(|host| text(handler, host))
                .into_iter()
                .filter(|host| !host.is_empty())
        });
        let used: Vec<_> = used.collect();
        hosts.extend(used.iter().copied());
        !used.is_empty()
    });
    names.sort_unstable();
    names.dedup();
    let who = setters(false, &names)?;
    let uses = plural(names.len(), "uses", "use");
    let what = plural(hosts.len(), "probe or lifecycle host", "probe or lifecycle hosts");
    violation("probe or lifecycle host", format!("{who} {uses} {what} {}", quote(hosts)))
}

pub(super) fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let who = setters(false, &pod.named(|container| flag(container, "/securityContext/privileged")))?;
    violation("privileged", format!("{who} must not set securityContext.privileged=true"))
}

pub(super) fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let names = pod.named(|container| {
        let of = container.pointer("/securityContext/procMount").and_then(Value::as_str);
        let bad = of.filter(|of| *of != "Default");
        types.extend(bad);
        bad.is_some()
    });
    let who = setters(false, &names)?;
    violation("procMount", format!("{who} must not set securityContext.procMount to {}", quote(types)))
}

pub(super) fn se_linux(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let (mut types, mut sets_user, mut sets_role) = (BTreeSet::new(), false, false);
    let mut is_bad = |value: &Value| {
        let Some(options) = value.pointer("/securityContext/seLinuxOptions") else { return false };
        let of = text(options, "/type");
        let (user, role) = (!text(options, "/user").is_empty(), !text(options, "/role").is_empty());
        let is_bad_type = !of.is_empty() && !allowed.contains(&of);
        if is_bad_type {
            types.insert(of.to_owned());
        }
        (sets_user, sets_role) = (sets_user || user, sets_role || role);
        is_bad_type || user || role
    };
    let by_pod = is_bad(&pod.0["spec"]);
    let names = pod.named(|container| is_bad(container));
    let who = setters(by_pod, &names)?;
    let types = (!types.is_empty()).then(|| format!("{} {}", plural(types.len(), "type", "types"), quote(&types)));
    let user = sets_user.then(|| "user may not be set".to_owned());
    let role = sets_role.then(|| "role may not be set".to_owned());
    let what: Vec<_> = [types, user, role].into_iter().flatten().collect();
    violation("seLinuxOptions", format!("{who} set forbidden securityContext.seLinuxOptions: {}", what.join("; ")))
}

/// The rule before pods had a field for it.
pub(super) fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let keys = pod.containers().map(|container| [annotations::CONTAINER_SECCOMP, name(container)].concat());
    let forbidden = [annotations::SECCOMP.to_owned()].into_iter().chain(keys).filter_map(|key| {
        let value = pod.annotation(&key)?;
        let is_allowed = matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
        (!is_allowed).then(|| format!("{key}={value:?}"))
    });
    let forbidden: BTreeSet<_> = forbidden.collect();
    if forbidden.is_empty() {
        return None;
    }
    let what = plural(forbidden.len(), "annotation", "annotations");
    let forbidden: Vec<_> = forbidden.into_iter().collect();
    violation("seccompProfile", format!("forbidden {what} {}", forbidden.join(", ")))
}

/// The seccomp profiles that a pod and its containers set.
struct Seccomp<'a> {
    /// Who sets a forbidden one.
    setters: Option<String>,
    /// The forbidden ones.
    types: BTreeSet<String>,
    /// The containers without any, if the pod has none either.
    without: Vec<&'a str>,
}

fn seccomp<'a>(pod: &Pod<'a>) -> Seccomp<'a> {
    let profile =
        |value: &'a Value| value.pointer("/securityContext/seccompProfile").map(|profile| text(profile, "/type"));
    let is_bad = |of: Option<&str>| of.is_some_and(|of| !matches!(of, "RuntimeDefault" | "Localhost"));
    let of_pod = profile(&pod.0["spec"]);
    let names = pod.named(|container| is_bad(profile(container)));
    let all = [of_pod].into_iter().chain(pod.containers().map(profile));
    let types = all.filter(|of| is_bad(*of)).flatten().map(str::to_owned).collect();
    let is_set = of_pod.is_some() && !is_bad(of_pod);
    let without = pod.named(|container| !is_set && profile(container).is_none());
    Seccomp { setters: setters(is_bad(of_pod), &names), types, without }
}

pub(super) fn baseline_seccomp(pod: &Pod<'_>) -> Option<Violation> {
    let Seccomp { setters, types, .. } = seccomp(pod);
    let who = setters?;
    violation("seccompProfile", format!("{who} must not set securityContext.seccompProfile.type to {}", quote(types)))
}

pub(super) fn restricted_seccomp(pod: &Pod<'_>) -> Option<Violation> {
    baseline_seccomp(pod).or_else(|| {
        let who = setters(false, &seccomp(pod).without)?;
        violation(
            "seccompProfile",
            format!("pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""),
        )
    })
}

/// Allows the first `safe` of the safe kernel parameters.
pub(super) fn sysctls(pod: &Pod<'_>, safe: usize) -> Option<Violation> {
    let set = list(pod.0, "/spec/securityContext/sysctls").iter().map(name);
    let forbidden: Vec<_> = set.filter(|sysctl| !SAFE_SYSCTLS[..safe].contains(sysctl)).collect();
    if forbidden.is_empty() { None } else { violation("forbidden sysctls", forbidden.join(", ")) }
}

pub(super) fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let is_bad = |value: &Value| flag(value, "/securityContext/windowsOptions/hostProcess");
    let who = setters(is_bad(&pod.0["spec"]), &pod.named(|container| is_bad(container)))?;
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}

pub(super) fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod
        .named(|container| container.pointer("/securityContext/allowPrivilegeEscalation") != Some(&Value::Bool(false)));
    let who = setters(false, &names)?;
    violation(
        "allowPrivilegeEscalation != false",
        format!("{who} must set securityContext.allowPrivilegeEscalation=false"),
    )
}

pub(super) fn volume_types(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let is = |volume: &Value, of: &str| volume.get(of).is_some_and(|source| !source.is_null());
    let volumes = list(pod.0, "/spec/volumes").iter().filter(|volume| {
        let is_allowed = ALLOWED_VOLUMES.iter().any(|of| is(volume, of));
        if !is_allowed {
            types.insert(RESTRICTED_VOLUMES.into_iter().find(|of| is(volume, of)).unwrap_or("unknown"));
        }
        !is_allowed
    });
    let volumes: Vec<_> = volumes.map(name).collect();
    if volumes.is_empty() {
        return None;
    }
    let count = volumes.len();
    violation(
        "restricted volume types",
        format!(
            "{} {} {} {} {}",
            plural(count, "volume", "volumes"),
            quote(volumes),
            plural(count, "uses", "use"),
            plural(types.len(), "restricted volume type", "restricted volume types"),
            quote(types)
        ),
    )
}

pub(super) fn non_root(pod: &Pod<'_>) -> Option<Violation> {
    let reason = "runAsNonRoot != true";
    let setting = |value: &Value| value.pointer("/securityContext/runAsNonRoot").and_then(Value::as_bool);
    let of_pod = setting(&pod.0["spec"]);
    let names = pod.named(|container| setting(container) == Some(false));
    if let Some(who) = setters(of_pod == Some(false), &names) {
        return violation(reason, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let without = pod.named(|container| of_pod.is_none() && setting(container).is_none());
    let who = setters(false, &without)?;
    violation(reason, format!("pod or {who} must set securityContext.runAsNonRoot=true"))
}

pub(super) fn root_user(pod: &Pod<'_>) -> Option<Violation> {
    let is_root = |value: &Value| value.pointer("/securityContext/runAsUser").and_then(Value::as_i64) == Some(0);
    let who = setters(is_root(&pod.0["spec"]), &pod.named(|container| is_root(container)))?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}
