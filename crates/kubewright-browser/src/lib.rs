//! Headless Chromium for tests: it opens a page, clicks and types like a user, takes pictures, and reports problems.
//!
//! Chromium is driven by its [DevTools protocol](https://chromedevtools.github.io/devtools-protocol/) over a pair of
//! pipes: no port is opened, and a Chromium whose pipe is closed ends by itself, even when the test was killed. Host
//! names are not resolved, and only loopback addresses are reached, so that external resources of a page fail and are
//! reported.
//!
//! ```no_run
//! # async fn run() -> Result<(), kubewright_browser::BrowserError> {
//! use kubewright_browser::{Browser, DESKTOP};
//!
//! let mut browser = Browser::launch().await?;
//! browser.resize(DESKTOP).await?;
//! browser.open("http://127.0.0.1:30685/").await?;
//! assert_eq!(browser.problems().await?, Vec::<String>::new());
//! # Ok(()) }
//! ```

mod chromium;
mod error;
mod page_events;
mod picture;

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use self::{chromium::Chromium, page_events::PageEvents};
pub use self::{
    error::BrowserError,
    picture::{Folder, PICTURES, save},
};

/// The timeout of every operation, generous for busy machines.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// The interval in which a page is polled.
const POLL: Duration = Duration::from_millis(50);

/// The size of the window in CSS pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The width.
    pub width: u32,
    /// The height.
    pub height: u32,
    /// Whether it is a phone: the page's viewport settings apply, and there are no scroll bars.
    pub phone: bool,
}

/// The window of a desktop.
pub const DESKTOP: Size = Size { width: 1200, height: 800, phone: false };
/// The screen of a small phone.
pub const PHONE: Size = Size { width: 360, height: 740, phone: true };

/// A browser with one page. Dropping it kills all its processes.
#[derive(Debug)]
pub struct Browser {
    chromium: Chromium,
    session: String,
    size: Size,
    events: PageEvents,
}

impl Browser {
    /// Starts Chromium with a fresh profile and an empty page of the size [`DESKTOP`].
    ///
    /// # Errors
    /// [`BrowserError::Missing`] if Chromium is not installed; the message says how to install it.
    pub async fn launch() -> Result<Self, BrowserError> {
        let mut browser =
            Self { chromium: Chromium::start()?, session: String::new(), size: DESKTOP, events: PageEvents::default() };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"})).await?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach).await?;
        browser.session = session["sessionId"].as_str().unwrap_or_default().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({})).await?;
        }
        browser.call("Page.setLifecycleEventsEnabled", json!({"enabled": true})).await?;
        browser.resize(DESKTOP).await?;
        Ok(browser)
    }

    /// Resizes the window.
    ///
    /// # Errors
    /// If the browser has exited or timed out.
    pub async fn resize(&mut self, size: Size) -> Result<(), BrowserError> {
        let Size { width, height, phone } = size;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone});
        self.call("Emulation.setDeviceMetricsOverride", metrics).await?;
        self.size = size;
        Ok(())
    }

    /// Opens an address, and waits until the page is loaded. From now on, requests to other hosts or ports count as
    /// problems.
    ///
    /// # Errors
    /// [`BrowserError::Unreachable`] if no server answers there.
    pub async fn open(&mut self, url: &str) -> Result<(), BrowserError> {
        self.events.visit(url);
        let begun = self.call("Page.navigate", json!({"url": url})).await?;
        if let Some(why) = begun["errorText"].as_str().filter(|why| !why.is_empty()) {
            // The error covers what the log contains about that.
            self.events.forget();
            return Err(BrowserError::Unreachable { url: url.into(), why: why.into() });
        }
        let loader = begun["loaderId"].as_str().unwrap_or_default().to_owned();
        let loaded = async {
            while !self.events.is_loaded(&loader) {
                sleep(POLL).await;
                // Before the answer to any command come the events so far. While a page is being replaced, only the
                // browser itself answers.
                self.chromium.call(None, "Browser.getVersion", json!({}), &mut self.events).await?;
            }
            Ok(())
        };
        timeout(DEADLINE, loaded).await.map_err(|_| BrowserError::TimedOut(format!("{url} is loaded")))?
    }

    /// Returns the value of a JavaScript expression on the page, after waiting for promises.
    ///
    /// # Errors
    /// If the expression throws.
    pub async fn evaluate(&mut self, expression: &str) -> Result<Value, BrowserError> {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", asked).await?;
        match answer.get("exceptionDetails") {
            None => Ok(answer["result"]["value"].clone()),
            Some(details) => {
                let thrown = details["exception"]["description"].as_str().or(details["text"].as_str());
                Err(BrowserError::Script { expression: expression.into(), thrown: thrown.unwrap_or_default().into() })
            }
        }
    }

    /// Waits until a JavaScript expression is `true`, on this page or a following one.
    ///
    /// # Errors
    /// [`BrowserError::TimedOut`] with the page's text.
    pub async fn until(&mut self, expression: &str) -> Result<(), BrowserError> {
        let so = async {
            // While a page is being replaced, no expression can be evaluated.
            while !matches!(self.evaluate(expression).await, Ok(Value::Bool(true))) {
                sleep(POLL).await;
            }
        };
        if timeout(DEADLINE, so).await.is_ok() {
            return Ok(());
        }
        let shown = self.text().await.unwrap_or_else(|error| error.to_string());
        Err(BrowserError::TimedOut(format!("{expression}; the page shows: {shown}")))
    }

    /// Waits until the page shows a text.
    ///
    /// # Errors
    /// [`BrowserError::TimedOut`] with the page's text.
    pub async fn shows(&mut self, text: &str) -> Result<(), BrowserError> {
        self.until(&format!("document.body?.innerText.includes({}) ?? false", json!(text))).await
    }

    /// Returns the text of the page.
    ///
    /// # Errors
    /// If the browser has exited or timed out.
    pub async fn text(&mut self) -> Result<String, BrowserError> {
        let text = self.evaluate("document.body?.innerText ?? ''").await?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Clicks the middle of the first element that a CSS selector matches.
    ///
    /// # Errors
    /// [`BrowserError::Element`] if there is none, or another element covers it.
    pub async fn click(&mut self, selector: &str) -> Result<(), BrowserError> {
        let place = self.evaluate(&format!("({})({})", include_str!("middle.js"), json!(selector))).await?;
        if let Some(why) = place.as_str() {
            return Err(BrowserError::Element { selector: selector.into(), why: why.into() });
        }
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let button = if kind == "mouseMoved" { "none" } else { "left" };
            let event = json!({"type": kind, "x": place[0], "y": place[1], "button": button, "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event).await?;
        }
        Ok(())
    }

    /// Clicks a field and replaces its text.
    ///
    /// # Errors
    /// As for [`Browser::click`].
    pub async fn write(&mut self, selector: &str, text: &str) -> Result<(), BrowserError> {
        self.click(selector).await?;
        self.evaluate("document.activeElement.select?.()").await?;
        self.call("Input.insertText", json!({"text": text})).await?;
        Ok(())
    }

    /// Presses the Enter key.
    ///
    /// # Errors
    /// If the browser has exited or timed out.
    pub async fn press_enter(&mut self) -> Result<(), BrowserError> {
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { "\r" } else { "" };
            let event =
                json!({"type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": text});
            self.call("Input.dispatchKeyEvent", event).await?;
        }
        Ok(())
    }

    /// Returns a PNG picture of the window.
    ///
    /// # Errors
    /// If the browser has exited or timed out.
    pub async fn screenshot(&mut self) -> Result<Vec<u8>, BrowserError> {
        let taken = self.call("Page.captureScreenshot", json!({"format": "png"})).await?;
        let data = taken["data"].as_str().unwrap_or_default();
        BASE64_STANDARD.decode(data).map_err(|_| BrowserError::InvalidMessage)
    }

    /// Takes pictures of the page at the sizes [`DESKTOP`] and [`PHONE`], saves them as
    /// `target/screenshots/<name>-desktop.png` and `-phone.png`, and returns the problems at either size: see
    /// [`Browser::problems`].
    ///
    /// # Errors
    /// If the browser has exited or timed out, or a picture can't be written.
    pub async fn inspect(&mut self, name: &str) -> Result<Vec<String>, BrowserError> {
        let mut problems = Vec::new();
        for (size, kind) in [(DESKTOP, "desktop"), (PHONE, "phone")] {
            self.resize(size).await?;
            self.evaluate("scrollTo(0, 0)").await?;
            let picture = self.screenshot().await?;
            save(Folder::Screenshots, &format!("{name}-{kind}"), &picture)?;
            problems.extend(self.problems().await?.into_iter().map(|complaint| format!("{kind}: {complaint}")));
        }
        self.resize(DESKTOP).await?;
        Ok(problems)
    }

    /// Returns the problems of the page since the last call: a missing language, title or main part, a field or picture
    /// without a name, text that overflows the window, errors and warnings on the console, and requests to other hosts.
    ///
    /// # Errors
    /// If the browser has exited or timed out.
    pub async fn problems(&mut self) -> Result<Vec<String>, BrowserError> {
        let found = self.evaluate(&format!("({})({})", include_str!("audit.js"), self.size.width)).await?;
        let found = found.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let mut problems = self.events.take();
        problems.extend(found);
        Ok(problems)
    }

    async fn call(&mut self, method: &str, parameters: Value) -> Result<Value, BrowserError> {
        let session = Some(self.session.as_str()).filter(|session| !session.is_empty());
        let call = self.chromium.call(session, method, parameters, &mut self.events);
        timeout(DEADLINE, call).await.map_err(|_| BrowserError::TimedOut(format!("{method} is answered")))?
    }
}
