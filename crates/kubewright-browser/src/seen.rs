//! What the browser tells unasked: pages that are loaded, requests that are made, things that go wrong.

use serde_json::Value;

/// How much of it is kept; a page that says more is complained about by what it said first.
const MOST: usize = 1000;

/// What was told since it was last taken.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Scheme, host and port that requests may go to.
    origin: String,
    loaded: Vec<String>,
    troubles: Vec<String>,
}

impl Seen {
    /// Says where the page comes from.
    pub(crate) fn visit(&mut self, url: &str) {
        self.origin = origin(url).to_owned();
        self.loaded.clear();
    }

    /// Takes in an event of the protocol.
    pub(crate) fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        let text = |pointer: &str| parameters.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        match event["method"].as_str().unwrap_or_default() {
            "Page.lifecycleEvent" if text("/name") == "load" => self.loaded.push(text("/loaderId").to_owned()),
            "Runtime.consoleAPICalled" if ["error", "warning", "assert"].contains(&text("/type")) => {
                self.trouble(format!("console: {}", parameters["args"]));
            }
            "Runtime.exceptionThrown" => {
                self.trouble(format!("exception: {}", text("/exceptionDetails/exception/description")))
            }
            "Log.entryAdded" if ["error", "warning"].contains(&text("/entry/level")) => {
                self.trouble(format!("{}: {} ({})", text("/entry/level"), text("/entry/text"), text("/entry/url")));
            }
            "Network.requestWillBeSent" => {
                let url = text("/request/url");
                if !url.starts_with("data:") && origin(url) != self.origin {
                    self.trouble(format!("a request to elsewhere: {url}"));
                }
            }
            _ => {}
        }
    }

    /// Whether this load of a page has come to its end.
    pub(crate) fn is_loaded(&self, loader: &str) -> bool {
        self.loaded.iter().any(|loaded| loaded == loader)
    }

    /// What went wrong, which is forgotten by that.
    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.troubles)
    }

    /// Forgets what went wrong.
    pub(crate) fn forget(&mut self) {
        self.troubles.clear();
    }

    fn trouble(&mut self, trouble: String) {
        if self.troubles.len() < MOST {
            self.troubles.push(trouble);
        }
    }
}

/// `http://host:port` of an address.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |scheme| scheme + 3);
    let end = url[host..].find(['/', '?', '#']).map_or(url.len(), |end| host + end);
    &url[..end]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(url: &str) -> Value {
        json!({"method": "Network.requestWillBeSent", "params": {"request": {"url": url}}})
    }

    #[test]
    fn what_goes_elsewhere_is_trouble() {
        let mut seen = Seen::default();
        seen.visit("http://127.0.0.1:80/?a");
        for url in [
            "http://127.0.0.1:80/style",
            "http://127.0.0.1:80?b",
            "data:image/png,",
            "http://127.0.0.1:800/",
            "https://fonts.example/",
        ] {
            seen.note(&request(url));
        }
        let elsewhere = |url: &str| format!("a request to elsewhere: {url}");
        assert_eq!(seen.take(), [elsewhere("http://127.0.0.1:800/"), elsewhere("https://fonts.example/")]);
        assert_eq!(seen.take(), Vec::<String>::new());
    }

    #[test]
    fn errors_and_warnings_are_trouble_and_the_rest_is_not() {
        let mut seen = Seen::default();
        for level in ["verbose", "info", "warning", "error"] {
            seen.note(
                &json!({"method": "Log.entryAdded", "params": {"entry": {"level": level, "text": "x", "url": "u"}}}),
            );
        }
        seen.note(&json!({"method": "Runtime.consoleAPICalled", "params": {"type": "log", "args": []}}));
        seen.note(&json!({"method": "Runtime.consoleAPICalled", "params": {"type": "error", "args": ["y"]}}));
        assert_eq!(seen.take(), ["warning: x (u)", "error: x (u)", "console: [\"y\"]"]);
    }

    #[test]
    fn a_load_is_told_from_others() {
        let mut seen = Seen::default();
        let told = |name: &str| json!({"method": "Page.lifecycleEvent", "params": {"name": name, "loaderId": "L"}});
        seen.note(&told("DOMContentLoaded"));
        assert!(!seen.is_loaded("L"));
        seen.note(&told("load"));
        assert!(seen.is_loaded("L") && !seen.is_loaded("M"));
    }
}
