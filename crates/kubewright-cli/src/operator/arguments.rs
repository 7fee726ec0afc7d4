//! The arguments that an operator is started with: those of the user, and the addresses to serve at.
//!
//! Free ports are chosen unless the user specifies them, so that several operators can run on one machine.

use std::{io, net::TcpListener};

use anyhow::{Context, Result};

const PROBES: &str = "--health-probe-bind-address";
const WEBHOOKS: &str = "--webhook-bind-address";
const WEBHOOK_URL: &str = "--webhook-url";
const CERTIFICATES: &str = "--webhook-cert-path";

/// The arguments of an operator on this machine. They are the same for every start, so that its addresses stay the
/// same.
#[derive(Debug)]
pub(crate) struct OperatorArguments {
    given: Vec<String>,
    probe_port: u16,
    webhook_port: u16,
}

impl OperatorArguments {
    /// Adds free ports to the arguments from the user.
    pub(crate) fn new(given: Vec<String>) -> Result<Self> {
        let free = || free_port().context("find a free port");
        Ok(Self { given, probe_port: free()?, webhook_port: free()? })
    }

    /// Returns all arguments. With `webhooks` they include the address and the URL of the webhook server, unless the
    /// user has set one of these flags.
    pub(crate) fn all(&self, webhooks: bool) -> Vec<String> {
        let mut all = Vec::new();
        if self.value(PROBES).is_none() {
            all.push(format!("{PROBES}=127.0.0.1:{}", self.probe_port));
        }
        if webhooks && [WEBHOOKS, WEBHOOK_URL, CERTIFICATES].iter().all(|flag| self.value(flag).is_none()) {
            all.push(format!("{WEBHOOKS}=127.0.0.1:{}", self.webhook_port));
            all.push(format!("{WEBHOOK_URL}=https://127.0.0.1:{}", self.webhook_port));
        }
        all.extend(self.given.iter().cloned());
        all
    }

    /// Returns the URL of the operator's probes and traces; `None` if it serves none.
    pub(crate) fn probe_url(&self) -> Option<String> {
        match self.value(PROBES) {
            None => Some(format!("http://127.0.0.1:{}", self.probe_port)),
            Some("0" | "") => None,
            Some(port) if port.starts_with(':') => Some(format!("http://127.0.0.1{port}")),
            Some(address) => Some(format!("http://{address}")),
        }
    }

    /// Returns the value of a flag in the user's arguments, given as `--flag=value` or `--flag value`.
    fn value(&self, flag: &str) -> Option<&str> {
        self.given.iter().enumerate().find_map(|(index, word)| match word.strip_prefix(flag)? {
            "" => Some(self.given.get(index + 1).map_or("", String::as_str)),
            rest => rest.strip_prefix('='),
        })
    }
}

/// Returns a port that is currently free. If another process binds it before the operator does, the operator reports
/// that and exits.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(given: &[&str]) -> OperatorArguments {
        let given = given.iter().map(|word| (*word).into()).collect();
        OperatorArguments { given, probe_port: 1001, webhook_port: 1002 }
    }

    #[test]
    fn addresses_are_added_where_the_user_gives_none() {
        let some = arguments(&["--greet", "you"]);
        assert_eq!(some.all(false), ["--health-probe-bind-address=127.0.0.1:1001", "--greet", "you"]);
        let webhooks = ["--webhook-bind-address=127.0.0.1:1002", "--webhook-url=https://127.0.0.1:1002"];
        assert_eq!(some.all(true)[1..3], webhooks);
        assert_eq!(some.probe_url().as_deref(), Some("http://127.0.0.1:1001"));
    }

    #[test]
    fn addresses_of_the_user_are_kept() {
        for (given, url) in [
            (vec!["--health-probe-bind-address=:8081"], Some("http://127.0.0.1:8081")),
            (vec!["--health-probe-bind-address", "127.0.0.2:9"], Some("http://127.0.0.2:9")),
            (vec!["--health-probe-bind-address=0"], None),
        ] {
            let some = arguments(&given);
            assert_eq!(some.all(false), given);
            assert_eq!(some.probe_url().as_deref(), url);
        }
        let own = arguments(&["--webhook-url=https://10.0.0.1:9443"]);
        assert_eq!(own.all(true)[1..], ["--webhook-url=https://10.0.0.1:9443"]);
        assert_eq!(arguments(&["--webhook-urls=x"]).all(true).len(), 4, "a flag with a longer name is another flag");
    }
}
