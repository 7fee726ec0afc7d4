//! `/etc/resolv.conf` of pods, by their `dnsPolicy` and `dnsConfig`
//! (<https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-s-dns-policy>).

use std::{fmt::Write as _, net::Ipv4Addr};

use k8s_openapi::api::core::v1::Pod;

use super::zone::DOMAIN;

/// Where programs find the file.
pub(crate) const PLACE: &str = "/etc/resolv.conf";
/// The maximum numbers of name servers and of search domains, as for the kubelet.
const LIMITS: (usize, usize) = (3, 32);

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResolvConf {
    pub(crate) nameservers: Vec<String>,
    searches: Vec<String>,
    options: Vec<String>,
}

impl ResolvConf {
    /// Reads a file. Later lines replace earlier ones, except for name servers.
    fn parse(text: &str) -> Self {
        let mut parsed = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace().map(str::to_owned);
            match words.next().as_deref() {
                Some("nameserver") => parsed.nameservers.extend(words.next()),
                Some("search" | "domain") => parsed.searches = words.collect(),
                Some("options") => parsed.options = words.collect(),
                _ => {}
            }
        }
        parsed
    }
}

/// Returns the host's own file.
pub(crate) fn host() -> ResolvConf {
    ResolvConf::parse(&std::fs::read_to_string(PLACE).unwrap_or_default())
}

/// Returns whether a pod has a file of its own. In the host's network, `ClusterFirst` means the host's.
pub(crate) fn has_own(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let policy = spec.and_then(|spec| spec.dns_policy.as_deref());
    spec.is_none_or(|spec| spec.host_network != Some(true))
        || matches!(policy, Some("ClusterFirstWithHostNet" | "None"))
}

/// Returns the file of a pod. `server` is the address of the cluster's DNS, which also passes queries on to the name
/// servers of the host, as a pod may not reach these.
pub(crate) fn of_pod(pod: &Pod, server: Ipv4Addr, host: ResolvConf) -> String {
    let spec = pod.spec.as_ref();
    let policy = spec.and_then(|spec| spec.dns_policy.as_deref()).unwrap_or("ClusterFirst");
    let mut conf = ResolvConf { nameservers: vec![server.to_string()], ..host };
    match policy {
        "None" => conf = ResolvConf::default(),
        "Default" => {}
        _ => {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let own = [format!("{namespace}.svc.{DOMAIN}"), format!("svc.{DOMAIN}"), DOMAIN.into()];
            conf.searches.splice(0..0, own);
            conf.options = vec!["ndots:5".into()];
        }
    }
    let given = spec.and_then(|spec| spec.dns_config.clone()).unwrap_or_default();
    conf.nameservers.extend(given.nameservers.unwrap_or_default());
    conf.searches.extend(given.searches.unwrap_or_default());
    for option in given.options.unwrap_or_default() {
        let name = option.name.unwrap_or_default();
        let is_same = |present: &String| present.split(':').next() == Some(&*name);
        conf.options.retain(|present| !is_same(present));
        conf.options.push(option.value.map_or(name.clone(), |value| format!("{name}:{value}")));
    }
    for (words, limit) in [(&mut conf.nameservers, LIMITS.0), (&mut conf.searches, LIMITS.1)] {
        let mut seen = std::collections::BTreeSet::new();
        words.retain(|word| seen.insert(word.clone()));
        words.truncate(limit);
    }
    let mut text = String::new();
    // Writing to a string doesn't fail.
    if !conf.searches.is_empty() {
        let _ = writeln!(text, "search {}", conf.searches.join(" "));
    }
    for server in &conf.nameservers {
        let _ = writeln!(text, "nameserver {server}");
    }
    if !conf.options.is_empty() {
        let _ = writeln!(text, "options {}", conf.options.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn files_follow_policy_and_configuration() {
        let host = ResolvConf::parse("# a comment\nnameserver 10.0.0.53\nsearch example.com\noptions edns0 ndots:2\n");
        let file = |mut spec: Value| {
            spec["containers"] = json!([]);
            let pod = json!({"metadata": {"namespace": "shop"}, "spec": spec});
            of_pod(&serde_json::from_value(pod).unwrap(), [127, 1, 0, 1].into(), host.clone())
        };
        let cluster = "search shop.svc.cluster.local svc.cluster.local cluster.local example.com\nnameserver 127.1.0.1\noptions ndots:5\n";
        assert_eq!(file(json!({})), cluster);
        assert_eq!(file(json!({"dnsPolicy": "ClusterFirst"})), cluster);
        assert_eq!(
            file(json!({"dnsPolicy": "Default"})),
            "search example.com\nnameserver 127.1.0.1\noptions edns0 ndots:2\n"
        );
        let config = json!({"nameservers": ["1.1.1.1"], "searches": ["a.example"], "options": [{"name": "ndots", "value": "2"}, {"name": "rotate"}]});
        assert_eq!(
            file(json!({"dnsPolicy": "None", "dnsConfig": config})),
            "search a.example\nnameserver 1.1.1.1\noptions ndots:2 rotate\n"
        );
        assert_eq!(
            file(
                json!({"dnsConfig": {"options": [{"name": "ndots", "value": "1"}], "searches": ["svc.cluster.local", "b.example"]}})
            ),
            "search shop.svc.cluster.local svc.cluster.local cluster.local example.com b.example\nnameserver 127.1.0.1\noptions ndots:1\n"
        );
    }
}
