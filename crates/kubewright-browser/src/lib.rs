//! Headless Chromium for tests: it opens a page, clicks and types as a guest does, takes pictures, and tells what was wrong.
//!
//! Chromium is driven by its [DevTools protocol](https://chromedevtools.github.io/devtools-protocol/) over a pair of pipes:
//! no port is opened, and a Chromium whose pipe is closed ends by itself, even when the test was killed. Names are not
//! resolved, and only addresses of the loopback network are reached, so that a page that loads something from elsewhere
//! doesn't, and is told of.
//!
//! ```no_run
//! # async fn run() -> Result<(), kubewright_browser::BrowserError> {
//! use kubewright_browser::{Browser, DESKTOP};
//!
//! let mut browser = Browser::launch().await?;
//! browser.resize(DESKTOP).await?;
//! browser.open("http://127.0.0.1:30685/").await?;
//! assert_eq!(browser.complaints().await?, Vec::<String>::new());
//! # Ok(()) }
//! ```

mod chromium;
mod error;
mod picture;
mod seen;

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use self::{chromium::Chromium, seen::Seen};
pub use self::{
    error::BrowserError,
    picture::{Folder, PICTURES, keep},
};

/// How long anything may take that the browser does. Generous: a busy machine is slow, not broken.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// How often a page is asked whether it is so far.
const POLL: Duration = Duration::from_millis(50);

/// How large the window is, in CSS pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Its width.
    pub width: u32,
    /// Its height.
    pub height: u32,
    /// Whether it is a phone's: the page's own words about its width count, and there are no scroll bars.
    pub phone: bool,
}

/// A desktop's window.
pub const DESKTOP: Size = Size { width: 1200, height: 800, phone: false };
/// A small phone's.
pub const PHONE: Size = Size { width: 360, height: 740, phone: true };

/// A browser with one page. Dropping it kills it with all its processes.
#[derive(Debug)]
pub struct Browser {
    chromium: Chromium,
    session: String,
    size: Size,
    seen: Seen,
}

impl Browser {
    /// Starts Chromium with a fresh profile and an empty page as large as [`DESKTOP`].
    ///
    /// # Errors
    /// [`BrowserError::Missing`] if there is no Chromium; the message says how to get one.
    pub async fn launch() -> Result<Self, BrowserError> {
        let mut browser =
            Self { chromium: Chromium::start()?, session: String::new(), size: DESKTOP, seen: Seen::default() };
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

    /// Makes the window as large as this.
    ///
    /// # Errors
    /// If the browser is gone or too slow.
    pub async fn resize(&mut self, size: Size) -> Result<(), BrowserError> {
        let Size { width, height, phone } = size;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone});
        self.call("Emulation.setDeviceMetricsOverride", metrics).await?;
        self.size = size;
        Ok(())
    }

    /// Opens an address, and waits until the page is loaded. Requests to any other host or port are complained about from now on.
    ///
    /// # Errors
    /// [`BrowserError::Unreachable`] if nothing answers there.
    pub async fn open(&mut self, url: &str) -> Result<(), BrowserError> {
        self.seen.visit(url);
        let begun = self.call("Page.navigate", json!({"url": url})).await?;
        if let Some(why) = begun["errorText"].as_str().filter(|why| !why.is_empty()) {
            // What stands in the log about that is told by the error.
            self.seen.forget();
            return Err(BrowserError::Unreachable { url: url.into(), why: why.into() });
        }
        let loader = begun["loaderId"].as_str().unwrap_or_default().to_owned();
        let loaded = async {
            while !self.seen.is_loaded(&loader) {
                sleep(POLL).await;
                // Whatever it is asked, it tells what has happened first. While one page follows another only the browser answers.
                self.chromium.call(None, "Browser.getVersion", json!({}), &mut self.seen).await?;
            }
            Ok(())
        };
        timeout(DEADLINE, loaded).await.map_err(|_| BrowserError::TimedOut(format!("{url} is loaded")))?
    }

    /// The value of a JavaScript expression on the page; a promise is waited for.
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

    /// Waits until a JavaScript expression is `true`, on this page or one that it leads to.
    ///
    /// # Errors
    /// [`BrowserError::TimedOut`] with what the page shows instead.
    pub async fn until(&mut self, expression: &str) -> Result<(), BrowserError> {
        let so = async {
            // While one page follows another there is none to ask.
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
    /// [`BrowserError::TimedOut`] with what it shows instead.
    pub async fn shows(&mut self, text: &str) -> Result<(), BrowserError> {
        self.until(&format!("document.body?.innerText.includes({}) ?? false", json!(text))).await
    }

    /// The text that the page shows.
    ///
    /// # Errors
    /// If the browser is gone or too slow.
    pub async fn text(&mut self) -> Result<String, BrowserError> {
        let text = self.evaluate("document.body?.innerText ?? ''").await?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Clicks in the middle of the first element that a CSS selector finds, with the mouse.
    ///
    /// # Errors
    /// [`BrowserError::Element`] if there is none, or something else is in front of it.
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

    /// Clicks into a field and writes a text instead of what it holds.
    ///
    /// # Errors
    /// As [`Browser::click`].
    pub async fn write(&mut self, selector: &str, text: &str) -> Result<(), BrowserError> {
        self.click(selector).await?;
        self.evaluate("document.activeElement.select?.()").await?;
        self.call("Input.insertText", json!({"text": text})).await?;
        Ok(())
    }

    /// Presses the Enter key.
    ///
    /// # Errors
    /// If the browser is gone or too slow.
    pub async fn press_enter(&mut self) -> Result<(), BrowserError> {
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { "\r" } else { "" };
            let event =
                json!({"type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": text});
            self.call("Input.dispatchKeyEvent", event).await?;
        }
        Ok(())
    }

    /// A picture of the window, as PNG.
    ///
    /// # Errors
    /// If the browser is gone or too slow.
    pub async fn picture(&mut self) -> Result<Vec<u8>, BrowserError> {
        let taken = self.call("Page.captureScreenshot", json!({"format": "png"})).await?;
        let data = taken["data"].as_str().unwrap_or_default();
        BASE64_STANDARD.decode(data).map_err(|_| BrowserError::Garbled)
    }

    /// Pictures of the page as [`DESKTOP`] and [`PHONE`] show it, kept as `target/screenshots/<name>-desktop.png` and
    /// `-phone.png`, and what is wrong at either size: see [`Browser::complaints`].
    ///
    /// # Errors
    /// If the browser is gone or too slow, or a picture can't be written.
    pub async fn inspect(&mut self, name: &str) -> Result<Vec<String>, BrowserError> {
        let mut complaints = Vec::new();
        for (size, kind) in [(DESKTOP, "desktop"), (PHONE, "phone")] {
            self.resize(size).await?;
            self.evaluate("scrollTo(0, 0)").await?;
            let picture = self.picture().await?;
            keep(Folder::Screenshots, &format!("{name}-{kind}"), &picture)?;
            complaints.extend(self.complaints().await?.into_iter().map(|complaint| format!("{kind}: {complaint}")));
        }
        self.resize(DESKTOP).await?;
        Ok(complaints)
    }

    /// What is wrong with the page, and what went wrong since the last call: a page without language, title, or main part, a
    /// field or picture without name, text that sticks out of the window, errors and warnings on the console, and
    /// requests to other hosts.
    ///
    /// # Errors
    /// If the browser is gone or too slow.
    pub async fn complaints(&mut self) -> Result<Vec<String>, BrowserError> {
        let found = self.evaluate(&format!("({})({})", include_str!("audit.js"), self.size.width)).await?;
        let found = found.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let mut complaints = self.seen.take();
        complaints.extend(found);
        Ok(complaints)
    }

    async fn call(&mut self, method: &str, parameters: Value) -> Result<Value, BrowserError> {
        let session = Some(self.session.as_str()).filter(|session| !session.is_empty());
        let call = self.chromium.call(session, method, parameters, &mut self.seen);
        timeout(DEADLINE, call).await.map_err(|_| BrowserError::TimedOut(format!("{method} is answered")))?
    }
}
