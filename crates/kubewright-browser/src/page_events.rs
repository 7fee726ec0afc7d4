//! The events of the page: loads, requests, and problems.

use serde_json::Value;

/// The maximum number of problems that are kept, the first ones.
const MOST: usize = 1000;

/// The events since the last call.
#[derive(Debug, Default)]
pub(crate) struct PageEvents {
    /// The scheme, host and port that requests may go to.
    origin: String,
    loaded: Vec<String>,
    troubles: Vec<String>,
}

impl PageEvents {
    /// Sets the address of the page.
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

    /// Returns whether this load of a page has completed.
    pub(crate) fn is_loaded(&self, loader: &str) -> bool {
        self.loaded.iter().any(|loaded| loaded == loader)
    }

    /// Takes the problems.
    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.troubles)
    }

    /// Forgets the problems.
    pub(crate) fn forget(&mut self) {
        self.troubles.clear();
    }

    fn trouble(&mut self, trouble: String) {
        if self.troubles.len() < MOST {
            self.troubles.push(trouble);
        }
    }
}

/// Returns `http://host:port` of an address.
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
        let mut events = PageEvents::default();
        events.visit("http://127.0.0.1:80/?a");
        for url in [
            "http://127.0.0.1:80/style",
            "http://127.0.0.1:80?b",
            "data:image/png,",
            "http://127.0.0.1:800/",
            "https://fonts.example/",
        ] {
            events.note(&request(url));
        }
        let elsewhere = |url: &str| format!("a request to elsewhere: {url}");
        assert_eq!(events.take(), [elsewhere("http://127.0.0.1:800/"), elsewhere("https://fonts.example/")]);
        assert_eq!(events.take(), Vec::<String>::new());
    }

    #[test]
    fn errors_and_warnings_are_trouble_and_the_rest_is_not() {
        let mut events = PageEvents::default();
        for level in ["verbose", "info", "warning", "error"] {
            events.note(
                &json!({"method": "Log.entryAdded", "params": {"entry": {"level": level, "text": "x", "url": "u"}}}),
            );
        }
        events.note(&json!({"method": "Runtime.consoleAPICalled", "params": {"type": "log", "args": []}}));
        events.note(&json!({"method": "Runtime.consoleAPICalled", "params": {"type": "error", "args": ["y"]}}));
        assert_eq!(events.take(), ["warning: x (u)", "error: x (u)", "console: [\"y\"]"]);
    }

    #[test]
    fn a_load_is_distinguished_from_others() {
        let mut events = PageEvents::default();
        let told = |name: &str| json!({"method": "Page.lifecycleEvent", "params": {"name": name, "loaderId": "L"}});
        events.note(&told("DOMContentLoaded"));
        assert!(!events.is_loaded("L"));
        events.note(&told("load"));
        assert!(events.is_loaded("L") && !events.is_loaded("M"));
    }
}
