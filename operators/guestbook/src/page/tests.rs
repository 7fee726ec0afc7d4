use std::time::Duration;

use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use kubewright::{clock::VirtualClock, random::Random};
use tokio::time::timeout;
use tower::ServiceExt;

use super::*;

fn page(service: Option<&str>) -> Page {
    let settings = Settings {
        alias: Alias::Phone,
        title: "Ours".into(),
        greeting: "Hello".into(),
        pod_name: String::new(),
        service: service.map(str::to_owned),
    };
    Page::new(settings, VirtualClock::starting_at("2020-01-30T10:00:00Z".parse().unwrap()), Random::from_entropy())
}

async fn send(page: &Page, request: Request<Body>) -> (StatusCode, HeaderMap, String) {
    let response = page.router().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
}

async fn get_page(page: &Page) -> String {
    let (status, _, text) = send(page, Request::get("/").body(Body::empty()).unwrap()).await;
    assert_eq!(status, StatusCode::OK);
    text
}

fn form(body: impl Into<Body>) -> Request<Body> {
    let request = Request::post("/entries").header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    request.body(body.into()).unwrap()
}

#[tokio::test]
async fn an_entry_is_taken_and_listed() {
    let page = page(None);
    assert!(get_page(&page).await.contains("No entries yet"));
    let (status, headers, _) = send(&page, form("entry=%2B1+415+%3Cb%3E")).await;
    assert_eq!((status, headers[header::LOCATION].as_bytes()), (StatusCode::SEE_OTHER, &b"/?signed"[..]));
    let (status, headers, text) = send(&page, Request::get("/?signed").body(Body::empty()).unwrap()).await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains("+1 415 &lt;b&gt;") && text.contains("Your entry is in the book"), "{text}");
    assert!(headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap().starts_with("default-src 'none'"));
}

#[tokio::test]
async fn invalid_entries_are_refused_with_an_explanation() {
    let page = page(None);
    let check = async |request: Request<Body>, expect: u16, words: &str| {
        let (status, _, text) = send(&page, request).await;
        assert!(status.as_u16() == expect && text.contains(words), "{status} {text}");
    };
    check(form("entry=+"), 422, "Please write your phone number first.").await;
    check(form(""), 422, "Please write your phone number first.").await;
    check(form(format!("entry={}", "7".repeat(201))), 422, &format!("value=\"{}\"", "7".repeat(201))).await;
    check(form(format!("entry={}", "7".repeat(10_000))), 413, "could not be read").await;
    check(form(&b"entry=%ff\xff"[..]), 422, "").await;
    check(Request::post("/entries").body(Body::from("entry=1")).unwrap(), 415, "could not be read").await;
    let mut foreign = form("entry=1");
    foreign.headers_mut().insert("sec-fetch-site", HeaderValue::from_static("cross-site"));
    check(foreign, 403, "could not be read").await;
    assert!(get_page(&page).await.contains("No entries yet"));
}

/// A page that listens, and follows the active pod at an address.
struct Pod {
    page: Page,
    server: Server,
    follows: tokio::task::JoinHandle<()>,
}

impl Pod {
    async fn start(service: Option<&str>) -> Self {
        let page = page(service);
        let address = "127.0.0.1:0".parse().unwrap();
        let server = Server::start("tests", "--listen", &address, page.router()).await.unwrap().unwrap();
        let (replica, service) = (page.replica.clone(), service.map(str::to_owned));
        let follows = tokio::spawn(async move { replica.follow(service.as_deref()).await });
        Self { page, server, follows }
    }

    async fn sign(&self, text: &str) {
        let (status, ..) = send(&self.page, form(format!("entry={text}"))).await;
        assert_eq!(status, StatusCode::SEE_OTHER);
    }

    fn texts(&self) -> Vec<String> {
        self.page.replica.book.lock().newest().map(|entry| entry.text.clone()).collect()
    }

    async fn kill(self) {
        self.follows.abort();
        self.server.shutdown().await;
    }
}

async fn eventually(what: &str, so: impl Fn() -> bool) {
    let waiting = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(30), waiting)
        .await
        .unwrap_or_else(|_| panic!("in 30 s it did not come about that {what}"));
}

/// A Service: forwards connections to the pod that is currently selected.
async fn service() -> (String, tokio::sync::watch::Sender<Option<std::net::SocketAddr>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (leads, led) = tokio::sync::watch::channel(None);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let Some(pod) = *led.borrow() else { continue };
            tokio::spawn(async move {
                if let Ok(mut pod) = tokio::net::TcpStream::connect(pod).await {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut pod).await;
                }
            });
        }
    });
    (address, leads)
}

#[tokio::test]
async fn a_takeover_loses_no_entry() {
    let (address, leads) = service().await;
    let one = Pod::start(Some(&address)).await;
    // There is no active pod, which takes a while to detect.
    eventually("the first is ready", || one.page.replica.is_ready()).await;
    leads.send_replace(Some(one.server.address()));
    one.sign("Ada").await;
    let two = Pod::start(Some(&address)).await;
    eventually("the second is ready", || two.page.replica.is_ready()).await;
    assert_eq!(two.texts(), ["Ada"], "a pod is ready when it has what there is");
    for number in 0..20 {
        one.sign(&format!("guest {number}")).await;
        assert_eq!(two.texts().len(), 2 + number, "a guest is thanked when both have the entry");
    }
    leads.send_replace(Some(two.server.address()));
    one.kill().await;
    two.sign("Bob").await;
    let three = Pod::start(Some(&address)).await;
    eventually("the third is ready", || three.page.replica.is_ready()).await;
    assert_eq!(three.texts(), two.texts());
    assert_eq!(three.texts().len(), 22);
}

#[tokio::test]
async fn the_first_entry_of_a_new_active_pod_is_confirmed_when_its_standbys_have_it() {
    let (address, leads) = service().await;
    let (one, two) = (Pod::start(Some(&address)).await, Pod::start(Some(&address)).await);
    eventually("both are ready", || one.page.replica.is_ready() && two.page.replica.is_ready()).await;
    leads.send_replace(Some(one.server.address()));
    one.sign("Ada").await;
    assert_eq!(two.texts(), ["Ada"]);
}

#[tokio::test]
async fn a_new_active_pod_gets_the_former_ones_entries_and_restarted_pods_get_all() {
    let (address, leads) = service().await;
    let one = Pod::start(Some(&address)).await;
    leads.send_replace(Some(one.server.address()));
    one.sign("Ada").await;
    let two = Pod::start(Some(&address)).await;
    eventually("they are the same", || two.texts() == ["Ada"]).await;
    leads.send_replace(Some(two.server.address()));
    // The former active pod accepted this entry from a guest before the takeover.
    one.sign("Bob").await;
    eventually("it came along", || two.texts().len() == 2).await;
    two.kill().await;
    let two = Pod::start(Some(&address)).await;
    leads.send_replace(Some(two.server.address()));
    eventually("the new one has all", || two.texts().len() == 2 && two.page.replica.is_ready()).await;
}

#[tokio::test]
async fn an_unresponsive_pod_delays_no_guest() {
    let one = Pod::start(None).await;
    eventually("it is ready", || one.page.replica.is_ready()).await;
    let question = serde_json::json!({"from": 7, "to": null, "after": 0, "entries": []});
    let request = Request::post("/replica").header(header::CONTENT_TYPE, "application/json");
    let (status, ..) = send(&one.page, request.body(Body::from(question.to_string())).unwrap()).await;
    assert_eq!(status, StatusCode::OK);
    // The other pod polled a moment ago and never returns: the guest waits no longer than the timeout.
    timeout(Duration::from_secs(5), one.sign("Ada")).await.unwrap();
    assert_eq!(one.texts(), ["Ada"]);
}
