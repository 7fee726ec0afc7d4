//! The checks of each level and version (<https://kubernetes.io/docs/concepts/security/pod-security-standards/>).

use super::{
    checks::{self, Pod},
    policy::{Level, LevelVersion, Version},
};

/// A violation of a standard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    /// What is violated, the same for all pods.
    pub(super) reason: &'static str,
    /// Where, in this pod.
    pub(super) detail: String,
}

/// Returns the violation of a rule by a pod.
type Rule = fn(&Pod<'_>) -> Option<Violation>;

/// A rule from a minor version of Kubernetes on.
type Since = (u32, Rule);

/// One check of a standard.
struct Check {
    /// Its versions, oldest first.
    versions: &'static [Since],
    /// The check of the restricted level that takes its place there, and the minor version from which it does.
    overridden: Option<u32>,
}

impl Check {
    const fn new(versions: &'static [Since]) -> Self {
        Self { versions, overridden: None }
    }

    const fn overridden_since(self, minor: u32) -> Self {
        Self { overridden: Some(minor), ..self }
    }

    fn at(&self, minor: u32) -> Option<Rule> {
        self.versions.iter().rev().find(|(since, _)| *since <= minor).map(|(_, rule)| *rule)
    }
}

/// The newest version in which a check has changed. Later ones are equal to it.
const NEWEST: u32 = 35;

/// The checks of the baseline level, in the order of their names in Kubernetes.
const BASELINE: [Check; 12] = [
    Check::new(&[(0, checks::app_armor)]),
    Check::new(&[(0, checks::baseline_capabilities)]).overridden_since(22),
    Check::new(&[(0, checks::host_namespaces)]),
    Check::new(&[(0, checks::host_paths)]).overridden_since(0),
    Check::new(&[(0, checks::host_ports)]),
    Check::new(&[(34, checks::hosts_of_probes)]),
    Check::new(&[(0, checks::privileged)]),
    Check::new(&[
        (0, checks::proc_mount),
        (35, |pod| if pod.has_own_users() { None } else { checks::proc_mount(pod) }),
    ])
    .overridden_since(35),
    Check::new(&[
        (0, |pod| checks::se_linux(pod, &["container_t", "container_init_t", "container_kvm_t"])),
        (31, |pod| {
            checks::se_linux(pod, &["container_t", "container_init_t", "container_kvm_t", "container_engine_t"])
        }),
    ]),
    Check::new(&[(0, checks::seccomp_annotations), (19, checks::baseline_seccomp)]).overridden_since(19),
    Check::new(&[
        (0, |pod| checks::sysctls(pod, 5)),
        (27, |pod| checks::sysctls(pod, 6)),
        (29, |pod| checks::sysctls(pod, 10)),
        (32, |pod| checks::sysctls(pod, 12)),
    ]),
    Check::new(&[(0, checks::windows_host_process)]),
];

/// The checks that the restricted level adds, in the order of their names in Kubernetes.
const RESTRICTED: [Check; 7] = [
    Check::new(&[
        (8, checks::privilege_escalation),
        (25, |pod| if pod.is_windows() { None } else { checks::privilege_escalation(pod) }),
    ]),
    Check::new(&[
        (22, checks::restricted_capabilities),
        (25, |pod| if pod.is_windows() { None } else { checks::restricted_capabilities(pod) }),
    ]),
    Check::new(&[(35, checks::proc_mount)]),
    Check::new(&[(0, checks::volume_types)]),
    Check::new(&[(0, checks::non_root), (35, |pod| if pod.has_own_users() { None } else { checks::non_root(pod) })]),
    Check::new(&[(23, checks::root_user), (35, |pod| if pod.has_own_users() { None } else { checks::root_user(pod) })]),
    Check::new(&[
        (19, checks::restricted_seccomp),
        (25, |pod| if pod.is_windows() { None } else { checks::restricted_seccomp(pod) }),
    ]),
];

/// Returns the violations of a level by a pod or a template.
pub(super) fn violations(LevelVersion { level, version }: LevelVersion, pod: &Pod<'_>) -> Vec<Violation> {
    let minor = match version {
        Version::Minor(minor) => minor.min(NEWEST),
        Version::Latest => NEWEST,
    };
    let is_restricted = level == Level::Restricted;
    let baseline = BASELINE.iter().filter(|check| {
        !(is_restricted && check.overridden.is_some_and(|since| since <= minor)) && level != Level::Privileged
    });
    let restricted = RESTRICTED.iter().filter(|_| is_restricted);
    baseline.chain(restricted).filter_map(|check| check.at(minor)?(pod)).collect()
}
