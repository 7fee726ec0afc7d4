//! Selection of the proxy for a destination.

use std::{net::IpAddr, sync::Arc};

use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use thiserror::Error;

/// The error of an unusable proxy URL.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the proxy {url} is not supported: use http://, https:// or socks5://, with a host")]
pub struct ProxyError {
    /// The URL without user and password.
    url: String,
}

/// The proxies of a client. Clones share them.
#[derive(Clone, Debug)]
pub struct Proxies {
    matcher: Arc<Matcher>,
    /// True if connections to loopback addresses use the proxy too.
    for_loopback: bool,
}

impl Proxies {
    /// Returns the proxies of the environment; see the [crate's documentation](crate). A value that is not the URL of a
    /// supported proxy is ignored.
    pub fn from_env() -> Self {
        Self::environment(Matcher::from_env())
    }

    fn environment(matcher: Matcher) -> Self {
        Self { matcher: Arc::new(matcher), for_loopback: false }
    }

    /// Returns one proxy for all destinations, including loopback addresses.
    ///
    /// # Errors
    /// If the URL is not the URL of a supported proxy.
    pub fn fixed(url: &Uri) -> Result<Self, ProxyError> {
        let proxies = Self { matcher: Arc::new(Matcher::builder().all(url.to_string()).build()), for_loopback: true };
        let is_usable = proxies.lookup(&Uri::from_static("https://destination")).is_some();
        if is_usable { Ok(proxies) } else { Err(ProxyError { url: without_user(url) }) }
    }

    /// Returns whether connections to a destination use a proxy.
    pub fn intercepts(&self, destination: &Uri) -> bool {
        self.lookup(destination).is_some()
    }

    pub(crate) fn lookup(&self, destination: &Uri) -> Option<Intercept> {
        if !self.for_loopback && destination.host().is_some_and(is_loopback) {
            return None;
        }
        let proxy = self.matcher.intercept(destination)?;
        matches!(proxy.uri().scheme_str(), Some("http" | "https" | "socks5" | "socks5h")).then_some(proxy)
    }
}

/// Returns whether a host in URL notation is a loopback address or `localhost`.
pub fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => {
            let name = host.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
    }
}

fn without_user(url: &Uri) -> String {
    let scheme = url.scheme_str().map(|scheme| format!("{scheme}://")).unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}{}{port}", url.host().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(proxies: &Proxies, destination: &str) -> Option<String> {
        let destination = destination.parse().expect("a URL");
        proxies.lookup(&destination).map(|proxy| proxy.uri().to_string())
    }

    #[test]
    fn variables_are_read_as_curl_does() {
        let matcher = Matcher::builder().https("http://secure:1").http("http://plain:2").all("socks5://any:3");
        let proxies = Proxies::environment(matcher.no("internal.example, 10.0.0.0/8,,").build());
        for (destination, expected) in [
            ("https://api.example:6443", Some("http://secure:1/")),
            ("http://api.example", Some("http://plain:2/")),
            ("https://internal.example", None),
            ("https://a.internal.example:6443", None),
            ("https://notinternal.example", Some("http://secure:1/")),
            ("https://10.96.0.1:443", None),
        ] {
            assert_eq!(proxy(&proxies, destination).as_deref(), expected, "{destination}");
        }
        let any = Proxies::environment(Matcher::builder().all("socks5://any:3").build());
        assert_eq!(proxy(&any, "https://api.example").as_deref(), Some("socks5://any:3/"));
        assert_eq!(proxy(&Proxies::environment(Matcher::builder().all("ftp://x").build()), "https://a"), None);
        assert_eq!(proxy(&Proxies::environment(Matcher::builder().all("socks4://x").build()), "https://a"), None);
        let none = Proxies::environment(Matcher::builder().all("http://any:3").no("*").build());
        assert_eq!(proxy(&none, "https://api.example"), None);
    }

    #[test]
    fn loopback_is_asked_directly_unless_a_kubeconfig_says_otherwise() {
        let environment = Proxies::environment(Matcher::builder().all("http://any:3").build());
        let fixed = Proxies::fixed(&Uri::from_static("http://any:3")).expect("a proxy");
        for local in [
            "https://127.0.0.1:6443",
            "https://127.13.0.9",
            "https://[::1]:6443",
            "https://[::ffff:127.0.0.1]:1",
            "https://localhost:6443",
            "http://LOCALHOST",
            "https://api.localhost.",
        ] {
            assert_eq!(proxy(&environment, local), None, "{local}");
            assert!(proxy(&fixed, local).is_some(), "{local}");
        }
        for other in ["https://localhost.example", "https://128.0.0.1", "https://[::2]"] {
            assert!(proxy(&environment, other).is_some(), "{other}");
        }
    }

    #[test]
    fn an_error_names_the_proxy_without_its_password() {
        let error = Proxies::fixed(&Uri::from_static("ftp://me:secret@proxy.example:21")).expect_err("not supported");
        assert!(error.to_string().starts_with("the proxy ftp://proxy.example:21 is not supported"), "{error}");
        let debug = format!("{:?}", Proxies::fixed(&Uri::from_static("http://me:secret@proxy.example")));
        assert!(!debug.contains("secret"), "{debug}");
    }
}
