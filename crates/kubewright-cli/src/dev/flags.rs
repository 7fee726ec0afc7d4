//! What the operator is told: where to listen, on ports that are free, unless its user says so.

use std::{io, net::TcpListener};

use anyhow::{Context, Result};

const PROBES: &str = "--health-probe-bind-address";
const WEBHOOKS: &str = "--webhook-bind-address";
const WEBHOOK_URL: &str = "--webhook-url";
const CERTIFICATES: &str = "--webhook-cert-path";

/// The flags of an operator; the same at each of its starts, so that addresses stay.
#[derive(Debug)]
pub(crate) struct Flags {
    told: Vec<String>,
    probes: u16,
    webhooks: u16,
}

impl Flags {
    /// With what the user tells the operator.
    pub(crate) fn new(told: Vec<String>) -> Result<Self> {
        let free = || free_port().context("find a free port");
        Ok(Self { told, probes: free()?, webhooks: free()? })
    }

    /// All of them, for an operator that has webhooks or none.
    pub(super) fn all(&self, has_webhooks: bool) -> Vec<String> {
        let mut flags = Vec::new();
        if self.value(PROBES).is_none() {
            flags.push(format!("{PROBES}=127.0.0.1:{}", self.probes));
        }
        // Who tells it something of this tells it all.
        if has_webhooks && [WEBHOOKS, WEBHOOK_URL, CERTIFICATES].iter().all(|flag| self.value(flag).is_none()) {
            flags.push(format!("{WEBHOOKS}=127.0.0.1:{}", self.webhooks));
            flags.push(format!("{WEBHOOK_URL}=https://127.0.0.1:{}", self.webhooks));
        }
        flags.extend(self.told.iter().cloned());
        flags
    }

    /// Where it answers probes and shows its traces, if it does.
    pub(super) fn probes(&self) -> Option<String> {
        match self.value(PROBES) {
            None => Some(format!("http://127.0.0.1:{}", self.probes)),
            Some("0" | "") => None,
            Some(all) if all.starts_with(':') => Some(format!("http://127.0.0.1{all}")),
            Some(address) => Some(format!("http://{address}")),
        }
    }

    /// A kubeconfig, with where `kubewright explain` finds the traces.
    pub(crate) fn note(&self, kubeconfig: String) -> String {
        match self.probes() {
            Some(address) => format!("{kubeconfig}{}", crate::kubeconfig::noted(&address)),
            None => kubeconfig,
        }
    }

    /// What the user said of a flag, as `--flag=value` or `--flag value`.
    fn value(&self, flag: &str) -> Option<&str> {
        self.told.iter().enumerate().find_map(|(index, word)| match word.strip_prefix(flag)? {
            "" => Some(self.told.get(index + 1).map_or("", String::as_str)),
            rest => rest.strip_prefix('='),
        })
    }
}

/// A port that is free now. Another may be faster than the operator, which then says so and ends.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(told: &[&str]) -> Flags {
        Flags { told: told.iter().map(|word| (*word).into()).collect(), probes: 1001, webhooks: 1002 }
    }

    #[test]
    fn addresses_are_told_to_who_has_none() {
        let some = flags(&["--greet", "you"]);
        assert_eq!(some.all(false), ["--health-probe-bind-address=127.0.0.1:1001", "--greet", "you"]);
        let webhooks = ["--webhook-bind-address=127.0.0.1:1002", "--webhook-url=https://127.0.0.1:1002"];
        assert_eq!(some.all(true)[1..3], webhooks);
        assert_eq!(some.probes().as_deref(), Some("http://127.0.0.1:1001"));
    }

    #[test]
    fn what_the_user_says_counts() {
        for (told, probes) in [
            (vec!["--health-probe-bind-address=:8081"], Some("http://127.0.0.1:8081")),
            (vec!["--health-probe-bind-address", "127.0.0.2:9"], Some("http://127.0.0.2:9")),
            (vec!["--health-probe-bind-address=0"], None),
        ] {
            let given = flags(&told);
            assert_eq!(given.all(false), told);
            assert_eq!(given.probes().as_deref(), probes);
        }
        let own = flags(&["--webhook-url=https://10.0.0.1:9443"]);
        assert_eq!(own.all(true)[1..], ["--webhook-url=https://10.0.0.1:9443"]);
        assert_eq!(flags(&["--webhook-urls=x"]).all(true).len(), 4, "that is another flag");
    }
}
