//! A real browser, and pages with problems.

use kubewright_browser::{Browser, BrowserError, DESKTOP, PHONE};

const GOOD: &str = "data:text/html,<!doctype html><html lang=en><meta name=viewport content='width=device-width'><title>Good</title>\
    <main><h1>Good</h1><label>Name <input id=name></label><button onclick='this.textContent=document.getElementById(`name`).value'>Go</button></main>";
const BAD: &str = "data:text/html,<!doctype html><p style='white-space:nowrap;margin-left:1150px;overflow:hidden'>A line that is cut off</p>\
    <input><img src=https://example.com/x.png><button></button><script>console.error('oh'); throw Error('no')</script>";

#[tokio::test]
async fn a_good_page_has_nothing_to_complain_about_and_can_be_used() {
    let mut browser = Browser::launch().await.unwrap();
    browser.open(GOOD).await.unwrap();
    for size in [DESKTOP, PHONE] {
        browser.resize(size).await.unwrap();
        assert_eq!(browser.problems().await.unwrap(), Vec::<String>::new());
    }
    browser.write("#name", "Ada").await.unwrap();
    browser.write("#name", "Bob").await.unwrap();
    browser.click("button").await.unwrap();
    browser.shows("Bob").await.unwrap();
    assert!(browser.screenshot().await.unwrap().starts_with(b"\x89PNG"));
    assert!(matches!(browser.click("#other").await, Err(BrowserError::Element { .. })));
    assert!(matches!(browser.evaluate("other").await, Err(BrowserError::Script { .. })));
}

#[tokio::test]
async fn a_bad_page_is_complained_about() {
    let mut browser = Browser::launch().await.unwrap();
    browser.open(BAD).await.unwrap();
    let problems = browser.problems().await.unwrap().join("\n");
    for part in [
        "no lang",
        "no title",
        "0 h1",
        "0 main",
        "no viewport",
        "no label: <input>",
        "no alternative text: <img",
        "no text: <button>",
        "text ends at",
        "console: ",
        "exception: Error: no",
        "a request to elsewhere: https://example.com/x.png",
        "net::ERR_NAME_NOT_RESOLVED",
    ] {
        assert!(problems.contains(part), "{part} in {problems}");
    }
    browser.resize(PHONE).await.unwrap();
    let problems = browser.problems().await.unwrap().join("\n");
    assert!(problems.contains("it scrolls sideways: "), "{problems}");
}
