//! The privileges of a container's processes, by its `securityContext`
//! (<https://kubernetes.io/docs/tasks/configure-pod-container/security-context/>).
//!
//! Where the node runs as root, `setpriv` of util-linux restricts the capabilities before the program starts. Other
//! users have none.

use std::{collections::BTreeSet, path::PathBuf};

use k8s_openapi::api::core::v1::Container;
use tokio::process::Command;

use super::{identity::Identity, view::find_program};

/// The capabilities of a container that isn't privileged and asks for no others, as container runtimes define them.
const DEFAULT: [&str; 14] = [
    "audit_write",
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "mknod",
    "net_bind_service",
    "net_raw",
    "setfcap",
    "setgid",
    "setpcap",
    "setuid",
    "sys_chroot",
];

/// The capability to read all directories, which each container has, whatever its user: the program that stands for its
/// image may be in the home directory of a user, which others can't read.
const SEARCH: &str = "dac_read_search";

/// Finds a `setpriv` that can restrict capabilities, by running it once. Returns `None` if this process isn't root, or
/// if the program is missing or can't do it.
pub(crate) async fn find() -> Option<PathBuf> {
    if !cfg!(target_os = "linux") || !rustix::process::geteuid().is_root() {
        return None;
    }
    let program = find_program("setpriv")?;
    // BusyBox has a program of this name, which can't do it.
    let words = prefix(Some(&program), &Container::default(), None);
    let trial = Command::new(&words[0]).args(&words[1..]).arg(&program).arg("--version").output().await;
    let failure = match trial {
        Ok(output) if output.status.success() => return Some(program),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    tracing::warn!(failure, "containers keep the privileges of the node: `setpriv` of util-linux doesn't work here");
    None
}

/// Returns the command that starts a container's program with restricted privileges: the words before that program and
/// its arguments. Empty if the container has all privileges of the node. `identity` is the container's user, if it
/// isn't that of the node.
pub(crate) fn prefix(setpriv: Option<&PathBuf>, container: &Container, identity: Option<&Identity>) -> Vec<String> {
    let security = container.security_context.clone().unwrap_or_default();
    let is_privileged = security.privileged == Some(true);
    let Some(setpriv) = setpriv.filter(|_| !is_privileged || identity.is_some()) else { return Vec::new() };
    let mut words = vec![setpriv.to_string_lossy().into_owned()];
    if let Some(Identity { user, group, groups }) = identity {
        let groups: Vec<_> = groups.iter().map(u32::to_string).collect();
        words.extend([format!("--reuid={user}"), format!("--regid={group}"), format!("--groups={}", groups.join(","))]);
        if *user != 0 {
            // A user other than root keeps no others.
            words.extend(["inh", "ambient"].map(|set| format!("--{set}-caps=-all,+{SEARCH}")));
        }
    }
    if is_privileged {
        words.push("--".into());
        return words;
    }
    let given = security.capabilities.unwrap_or_default();
    let [add, drop] = [given.add, given.drop].map(Option::unwrap_or_default);
    let names = |list: &[String]| -> BTreeSet<String> { list.iter().map(|name| plain(name)).collect() };
    let (add, drop) = (names(&add), names(&drop));
    let mut set = if add.contains("all") { "+all".to_owned() } else { "-all".to_owned() };
    let mut change = |sign: char, name: &str| {
        set.push(',');
        set.push(sign);
        set.push_str(name);
    };
    if !add.contains("all") {
        let kept = DEFAULT.iter().filter(|name| !drop.contains("all") && !drop.contains(**name));
        let added = add.iter().filter(|name| !drop.contains(*name)).map(String::as_str);
        kept.copied().chain(added).chain([SEARCH]).for_each(|name| change('+', name));
    } else {
        drop.iter().filter(|name| *name != "all" && *name != SEARCH).for_each(|name| change('-', name));
    }
    words.push(format!("--bounding-set={set}"));
    if security.allow_privilege_escalation == Some(false) {
        words.push("--no-new-privs".into());
    }
    words.push("--".into());
    words
}

/// Returns the name of a capability as `setpriv` takes it. Kubernetes takes it with and without `CAP_`.
fn plain(name: &str) -> String {
    let name = name.to_lowercase();
    name.strip_prefix("cap_").unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn capabilities_are_those_of_container_runtimes() {
        let setpriv = PathBuf::from("setpriv");
        let words = |security: Value| {
            let container = serde_json::from_value(json!({"name": "main", "securityContext": security})).unwrap();
            prefix(Some(&setpriv), &container, None).join(" ")
        };
        let all = DEFAULT.map(|name| format!(",+{name}")).concat();
        assert_eq!(words(json!({})), format!("setpriv --bounding-set=-all{all},+dac_read_search --"));
        assert_eq!(words(json!({"privileged": true})), "");
        let escalation = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["CAP_CHOWN", "net_admin"]}});
        assert_eq!(
            words(escalation),
            "setpriv --bounding-set=-all,+chown,+net_admin,+dac_read_search --no-new-privs --"
        );
        let most = json!({"capabilities": {"add": ["ALL"], "drop": ["SYS_TIME"]}});
        assert_eq!(words(most), "setpriv --bounding-set=+all,-sys_time --");
        let fewer = words(json!({"capabilities": {"drop": ["NET_RAW"]}}));
        let both = words(json!({"capabilities": {"drop": ["CHOWN"], "add": ["CHOWN"]}}));
        assert!(!both.contains("chown"), "dropped ones are dropped last: {both}");
        assert!(fewer.contains("+net_bind_service,+setfcap") && !fewer.contains("net_raw"), "{fewer}");
    }
}
