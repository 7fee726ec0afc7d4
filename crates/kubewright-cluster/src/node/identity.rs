//! The user and groups of a container's processes, and the owners of a pod's volumes, by their `securityContext`
//! (<https://kubernetes.io/docs/tasks/configure-pod-container/security-context/>).
//!
//! Where the node can't change users, all processes are those of its own user.

use std::{collections::BTreeSet, fs};

use k8s_openapi::api::core::v1::{Container, LinuxContainerUser, Pod, PodSecurityContext};
use rustix::process::{getegid, geteuid, getgroups};

/// The user and groups of a container's processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The user.
    pub(crate) user: u32,
    /// The primary group.
    pub(crate) group: u32,
    /// All groups, with the primary one, in ascending order.
    pub(crate) groups: BTreeSet<u32>,
}

/// The users and groups that an image knows: those of the host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts {
    passwd: String,
    group: String,
}

/// The owners of the files in the volumes of a pod. Without a value, they are those of the node's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeOwner {
    /// The user of the pod's tokens: that of all its containers, if they have the same one.
    pub(crate) user: Option<u32>,
    /// The group of the volumes, `fsGroup`.
    pub(crate) group: Option<u32>,
}

impl Accounts {
    /// Reads the users and groups of the host. A missing file is an empty one.
    pub(crate) fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self { passwd: text("/etc/passwd"), group: text("/etc/group") }
    }

    /// Returns the name and the primary group of a user.
    fn user(&self, id: u32) -> Option<(&str, u32)> {
        self.passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (name, _, found, group) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            (found.parse() == Ok(id)).then_some((name, group.parse().ok()?))
        })
    }

    /// Returns the groups that have a user as a member.
    fn groups_of<'a>(&'a self, user: &'a str) -> impl Iterator<Item = u32> + 'a {
        self.group.lines().filter_map(move |line| {
            let mut fields = line.split(':').skip(2);
            let (id, members) = (fields.next()?, fields.next()?);
            members.split(',').any(|member| member == user).then(|| id.parse().ok())?
        })
    }
}

impl Identity {
    /// Returns the identity of this process.
    pub(crate) fn of_node() -> Self {
        let group = getegid().as_raw();
        let others = getgroups().unwrap_or_default().into_iter().map(|group| group.as_raw());
        Self { user: geteuid().as_raw(), group, groups: others.chain([group]).collect() }
    }

    /// Returns the identity that a container asks for; `None` if it asks for none. What isn't given is that of the
    /// image, whose user is root.
    pub(crate) fn of(pod: &Pod, container: &Container, accounts: &Accounts) -> Option<Self> {
        let of_pod = of_pod(pod);
        let of_container = container.security_context.clone().unwrap_or_default();
        let user = of_container.run_as_user.or(of_pod.run_as_user).and_then(id);
        let group = of_container.run_as_group.or(of_pod.run_as_group).and_then(id);
        let given = of_pod.fs_group.into_iter().chain(of_pod.supplemental_groups.into_iter().flatten());
        let given: BTreeSet<u32> = given.filter_map(id).collect();
        if user.is_none() && group.is_none() && given.is_empty() {
            return None;
        }
        let user = user.unwrap_or(0);
        let account = accounts.user(user);
        let group = group.or(account.map(|(_, group)| group)).unwrap_or(0);
        let of_image = account.filter(|_| of_pod.supplemental_groups_policy.as_deref() != Some("Strict"));
        let of_image = of_image.into_iter().flat_map(|(name, _)| accounts.groups_of(name));
        let groups = of_image.chain([group]).chain(given).collect();
        Some(Self { user, group, groups })
    }

    /// Returns the identity that the status of a container shows.
    pub(crate) fn from_status(status: &LinuxContainerUser) -> Option<Self> {
        let groups = status.supplemental_groups.iter().flatten().copied().filter_map(id).collect();
        Some(Self { user: id(status.uid)?, group: id(status.gid)?, groups })
    }

    /// Returns the identity as the status of a container shows it.
    pub(crate) fn status(&self) -> LinuxContainerUser {
        let groups = self.groups.iter().copied().map(i64::from).collect();
        LinuxContainerUser { uid: self.user.into(), gid: self.group.into(), supplemental_groups: Some(groups) }
    }
}

impl VolumeOwner {
    /// Returns the owners that a pod asks for.
    pub(crate) fn of(pod: &Pod) -> Self {
        let of_pod = of_pod(pod);
        let spec = pod.spec.as_ref();
        let containers = spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
        let users: BTreeSet<_> = containers
            .map(|container| {
                let own = container.security_context.as_ref().and_then(|security| security.run_as_user);
                own.or(of_pod.run_as_user)
            })
            .collect();
        let user = users.first().copied().flatten().filter(|_| users.len() == 1);
        Self { user: user.and_then(id), group: of_pod.fs_group.and_then(id) }
    }
}

/// Refuses a container that must not run as root, and asks for it.
///
/// # Errors
/// Returns the message of the kubelet.
pub(crate) fn verify(pod: &Pod, container: &Container) -> Result<(), String> {
    let of_pod = of_pod(pod);
    let of_container = container.security_context.clone().unwrap_or_default();
    let refuses_root = of_container.run_as_non_root.or(of_pod.run_as_non_root) == Some(true);
    if !refuses_root || of_container.run_as_user.or(of_pod.run_as_user) != Some(0) {
        return Ok(());
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (name, namespace, uid) = (text(&pod.metadata.name), text(&pod.metadata.namespace), text(&pod.metadata.uid));
    Err(format!(
        "container's runAsUser breaks non-root policy (pod: \"{name}_{namespace}({uid})\", container: {})",
        container.name
    ))
}

fn of_pod(pod: &Pod) -> PodSecurityContext {
    pod.spec.as_ref().and_then(|spec| spec.security_context.clone()).unwrap_or_default()
}

/// Returns an ID, which the API server has validated.
fn id(number: i64) -> Option<u32> {
    u32::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(security: Value, containers: &[Value]) -> Pod {
        let containers: Vec<_> =
            containers.iter().map(|security| json!({"name": "main", "securityContext": security})).collect();
        let pod = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
            "spec": {"securityContext": security, "containers": containers}});
        serde_json::from_value(pod).expect("a pod")
    }

    fn accounts() -> Accounts {
        Accounts {
            passwd: "root:x:0:0:root:/root:/bin/sh\nme:x:1000:1001::/home/me:/bin/sh\n".into(),
            group: "root:x:0:\naudio:x:29:you,me\nme:x:1001:\n".into(),
        }
    }

    #[test]
    fn the_container_overrides_the_pod() {
        let check = |of_pod: Value, own: Value, expect: Option<(u32, u32, &[u32])>| {
            let pod = pod(of_pod.clone(), std::slice::from_ref(&own));
            let container = &pod.spec.as_ref().expect("a spec").containers[0];
            let expect =
                expect.map(|(user, group, groups)| Identity { user, group, groups: groups.iter().copied().collect() });
            assert_eq!(Identity::of(&pod, container, &accounts()), expect, "{of_pod} {own}");
        };
        check(json!({}), json!({}), None);
        check(json!({"runAsNonRoot": true}), json!({"privileged": true}), None);
        check(json!({"runAsUser": 7}), json!({}), Some((7, 0, &[0])));
        check(json!({"runAsUser": 7, "runAsGroup": 8}), json!({"runAsUser": 9}), Some((9, 8, &[8])));
        check(json!({"runAsUser": 1000}), json!({}), Some((1000, 1001, &[29, 1001])));
        check(json!({"runAsUser": 1000}), json!({"runAsGroup": 3}), Some((1000, 3, &[3, 29])));
        let strict = json!({"runAsUser": 1000, "supplementalGroups": [60], "supplementalGroupsPolicy": "Strict"});
        check(strict, json!({}), Some((1000, 1001, &[60, 1001])));
        check(json!({"fsGroup": 5, "supplementalGroups": [4]}), json!({}), Some((0, 0, &[0, 4, 5])));
    }

    #[test]
    fn tokens_belong_to_the_user_of_all_containers() {
        let check = |of_pod: Value, containers: &[Value], user: Option<u32>| {
            let owner = VolumeOwner::of(&pod(of_pod, containers));
            assert_eq!(owner, VolumeOwner { user, group: Some(5) }, "{containers:?}");
        };
        check(json!({"fsGroup": 5}), &[json!({})], None);
        check(json!({"fsGroup": 5, "runAsUser": 7}), &[json!({}), json!({"runAsUser": 7})], Some(7));
        check(json!({"fsGroup": 5, "runAsUser": 7}), &[json!({}), json!({"runAsUser": 8})], None);
        check(json!({"fsGroup": 5}), &[json!({}), json!({"runAsUser": 8})], None);
    }

    #[test]
    fn root_is_refused_if_the_pod_excludes_it() {
        let check = |of_pod: Value, own: Value| {
            let pod = pod(of_pod, &[own]);
            verify(&pod, &pod.spec.as_ref().expect("a spec").containers[0])
        };
        assert_eq!(check(json!({"runAsNonRoot": true}), json!({})), Ok(()));
        assert_eq!(check(json!({"runAsUser": 0}), json!({"runAsNonRoot": false})), Ok(()));
        assert_eq!(check(json!({"runAsNonRoot": true, "runAsUser": 0}), json!({"runAsUser": 3})), Ok(()));
        let refused = check(json!({"runAsNonRoot": true}), json!({"runAsUser": 0}));
        let message = "container's runAsUser breaks non-root policy (pod: \"web_shop(u-1)\", container: main)";
        assert_eq!(refused, Err(message.into()));
    }
}
