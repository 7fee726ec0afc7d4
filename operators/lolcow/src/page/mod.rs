//! The web page that runs in place of the image: a cow says the greeting, above an animated picture.
//!
//! As in the original image, the program takes the greeting as its argument, prints the cow and its address, and serves
//! the page on port 8080.

mod cow;
mod fortune;
mod html;

use std::{
    ffi::OsString,
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use axum::{Router, http::header, response::Html, routing::get};
use clap::Parser;
use kubewright::{
    probe::{BindAddress, BindError, Server},
    random::Random,
    signal::Signals,
};
use thiserror::Error;
use tokio::time::timeout;

pub use self::cow::{Balloon, COLUMNS};
use crate::api::v1alpha1::MAX_GREETING;

/// The time that responses have to complete at shutdown, which takes less than a second in total.
const DRAIN: Duration = Duration::from_millis(700);

/// The Content-Security-Policy: no external resources, no frames.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// A web page with a cow that says something.
///
/// A single argument is the greeting, even if it begins with a hyphen, as with the original image.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "lolcow-page",
    override_usage = "lolcow-page [GREETING]\n       lolcow-page --listen <ADDRESS> -- [GREETING]"
)]
pub struct Arguments {
    /// The greeting; without it, or if it is blank, a fortune. It is cut after 4096 characters
    #[arg(value_name = "GREETING")]
    pub greeting: Option<String>,

    /// Where to listen: host:port, or :port for all interfaces
    #[arg(long, env = "LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    pub listen: BindAddress,
}

impl Arguments {
    /// Parses the arguments of a program, its name first.
    ///
    /// # Errors
    /// If there are several arguments and they are invalid, or if the variable `LISTEN` is not a valid address.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut arguments: Vec<_> = arguments.into_iter().collect();
        if arguments.len() == 2 {
            arguments.insert(1, "--".into());
        }
        let lossy = arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned());
        Self::try_parse_from(lossy)
    }
}

/// An error that prevents the page from being served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PageError {
    /// The address can't be bound.
    #[error(transparent)]
    Listen(#[from] BindError),
    /// No address was given.
    #[error("no address to listen on: set --listen or LISTEN, such as :8080")]
    NoAddress,
    /// Signal handlers can't be installed.
    #[error("failed to install the signal handlers")]
    Signals(#[source] io::Error),
    /// Standard output can't be written.
    #[error("failed to print the cow")]
    Print(#[source] io::Error),
}

/// The content of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    text: String,
    balloon: Balloon,
}

impl Page {
    /// Creates the page for a greeting, or with a fortune if the greeting is missing or blank.
    pub fn new(greeting: Option<&str>, random: &Random) -> Self {
        let text = match greeting.filter(|greeting| !greeting.trim().is_empty()) {
            Some(greeting) if greeting.chars().count() > MAX_GREETING => {
                greeting.chars().take(MAX_GREETING - 1).chain(['…']).collect()
            }
            Some(greeting) => greeting.to_owned(),
            None => fortune::fortune(random).to_owned(),
        };
        let balloon = Balloon::of(&text);
        Self { text, balloon }
    }

    /// Returns the cow for a terminal.
    pub fn drawing(&self) -> String {
        self.balloon.drawing()
    }

    /// Returns the HTML document.
    pub fn html(&self) -> String {
        html::document(&self.text, &self.balloon)
    }

    /// Returns the routes: `/` is the page, `/healthz` answers `ok`.
    pub fn router(&self) -> Router {
        let page: Arc<str> = self.html().into();
        let headers = [
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            // The same address shows another page after a change of the greeting.
            (header::CACHE_CONTROL, "no-store"),
        ];
        Router::new()
            .route("/", get(async move || (headers, Html(page.to_string()))))
            .route("/healthz", get(async || "ok"))
    }
}

/// Prints the cow, and serves the page until SIGTERM or SIGINT.
///
/// # Errors
/// If the address can't be bound, or standard output can't be written.
pub async fn run(arguments: Arguments) -> Result<(), PageError> {
    let signals = Signals::install().map_err(PageError::Signals)?;
    let page = Page::new(arguments.greeting.as_deref(), &Random::from_entropy());
    let server = Server::start("the page", "--listen", &arguments.listen, page.router()).await?;
    let server = server.ok_or(PageError::NoAddress)?;
    let text = format!("{} * Running on http://{}\n", page.drawing(), server.address());
    io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()).map_err(PageError::Print)?;
    signals.shutdown().cancelled().await;
    // A client that doesn't read its response is disconnected.
    let _ = timeout(DRAIN, server.shutdown()).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::{
        body::{Body, to_bytes},
        http::{Request, StatusCode},
    };
    use tower::ServiceExt;

    use super::*;

    fn read(arguments: &[&str]) -> Result<Option<String>, String> {
        let arguments = ["lolcow-page"].iter().chain(arguments).map(OsString::from);
        Arguments::read(arguments).map(|read| read.greeting).map_err(|error| error.to_string())
    }

    #[test]
    fn an_only_argument_is_the_greeting() {
        for greeting in ["Hello", "--help", "-", "--", "--listen", "--listen=:1", "-v", "", "two words"] {
            assert_eq!(read(&[greeting]), Ok(Some(greeting.into())));
        }
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["--listen", ":1"]), Ok(None));
        assert_eq!(read(&["--listen", ":1", "Hello"]), Ok(Some("Hello".into())));
        assert_eq!(read(&["--listen", ":1", "--", "--help"]), Ok(Some("--help".into())));
        assert!(read(&["Hello", "world"]).is_err());
        assert!(read(&["--listen", "nowhere"]).unwrap_err().contains("invalid address"));
    }

    #[test]
    fn a_blank_greeting_is_a_fortune_and_an_endless_one_ends() {
        let page = |greeting| Page::new(greeting, &Random::seeded(3));
        assert_eq!(page(Some(" \n")), page(None));
        assert_ne!(page(Some("x")), page(None));
        let long = page(Some(&"🐄".repeat(100_000)));
        assert_eq!(long.text.chars().count(), MAX_GREETING);
        assert!(long.text.ends_with('…') && long.html().len() < 60_000);
    }

    #[tokio::test]
    async fn it_answers() {
        let router = Page::new(Some("Moo & more"), &Random::seeded(1)).router();
        let ask = async |method: &str, path: &str| {
            let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            let (parts, body) = answer.into_parts();
            (parts, String::from_utf8(to_bytes(body, usize::MAX).await.unwrap().into()).unwrap())
        };
        let (parts, body) = ask("GET", "/").await;
        assert_eq!(parts.status, StatusCode::OK);
        assert_eq!(parts.headers["content-type"], "text/html; charset=utf-8");
        assert!(parts.headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
        assert!(body.contains("Moo &amp; more"));
        assert_eq!(ask("HEAD", "/").await.1, "");
        assert_eq!(ask("GET", "/healthz").await.1, "ok");
        assert_eq!(ask("GET", "/other").await.0.status, StatusCode::NOT_FOUND);
        assert_eq!(ask("POST", "/").await.0.status, StatusCode::METHOD_NOT_ALLOWED);
    }
}
