//! The page in a browser, at the address of the Service, while the operator runs its pods.

use std::{future::pending, time::Duration};

use guestbook_operator::api::v1::{Guestbook, GuestbookStatus};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{Api, api::DeleteParams};
use kubewright::prelude::*;
use kubewright_browser::{Browser, BrowserError, Folder, save};
use kubewright_cluster::{Cluster, ImageTable, Pods, Program};

const CRD: &str = include_str!("../../config/crd/bases/webapp.my.domain_guestbooks.yaml");
const SAMPLE: &str = include_str!("../../config/samples/webapp_v1_guestbook.yaml");
const NAME: &str = "guestbook-sample";
/// The timeout of every wait, generous because pods are processes and the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The number of entries on the page.
const ENTRIES: &str = "document.querySelectorAll('#entries li').length";
/// The accessibility problems of a correct page.
const NOTHING: [&str; 0] = [];

#[tokio::test]
async fn a_guest_signs_in_a_browser_and_a_takeover_loses_nothing() {
    let page = Program::executable(env!("CARGO_BIN_EXE_guestbook-page")).env("LISTEN", "$(POD_IP):8080");
    let images = ImageTable::empty().with("kubewright/guestbook", page);
    let cluster = Cluster::builder().pods(Pods::Run).images(images).start().await.unwrap();
    cluster.apply_yaml(CRD).await.unwrap();
    cluster.apply_yaml(SAMPLE).await.unwrap();
    let operator = guestbook_operator::register(Manager::new(cluster.client()));
    tokio::select! {
        ended = operator.run_until(pending()) => panic!("the operator has ended: {ended:?}"),
        outcome = visit(&cluster) => outcome.unwrap(),
    }
    cluster.shutdown().await;
}

async fn visit(cluster: &Cluster) -> Result<(), BrowserError> {
    let first = served(cluster, "").await;
    let service = Api::<Service>::default_namespaced(cluster.client()).get(NAME).await.unwrap();
    let url = format!("http://{}/", service.spec.unwrap().cluster_ip.unwrap());
    let mut browser = Browser::launch().await?;
    browser.open(&url).await?;
    browser.shows("The Orchard House").await?;
    browser.shows("No entries yet").await?;
    assert_eq!(browser.inspect("guestbook-empty").await?, NOTHING);

    refuses(&mut browser).await?;
    signs(&mut browser, &url).await?;

    let pods = Api::<Pod>::default_namespaced(cluster.client());
    pods.delete(&first, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await.unwrap();
    let second = served(cluster, &first).await;
    browser.open(&url).await?;
    browser.shows(&second).await?;
    browser.shows("221B Baker Street, London").await?;
    browser.until(&format!("{ENTRIES} === 4")).await?;
    assert_eq!(browser.problems().await?, NOTHING);
    Ok(())
}

/// Waits until a pod other than `other` serves and the rest stand by; returns its name.
async fn served(cluster: &Cluster, other: &str) -> String {
    let is_served = |status: &GuestbookStatus| {
        !status.active.is_empty() && status.active != other && status.standby.len() == 2 && status.ready_replicas == 3
    };
    let all =
        |books: &[&Guestbook]| !books.is_empty() && books.iter().all(|it| it.status.as_ref().is_some_and(is_served));
    let books = cluster.expect_within::<Guestbook>(TIMEOUT, all).await.unwrap();
    books[0].status.clone().unwrap().active
}

/// An invalid entry is refused with a reason, and its text stays.
async fn refuses(browser: &mut Browser) -> Result<(), BrowserError> {
    browser.click("button").await?;
    browser.until("document.querySelector('#entry:invalid') === document.activeElement").await?;
    assert_eq!(browser.problems().await?, NOTHING, "the browser itself says that the field is empty");

    for (text, message) in [("   ", "Please write your address first."), (&"long ".repeat(41), "there is room for 200")]
    {
        browser.write("#entry", text).await?;
        browser.press_enter().await?;
        browser.shows(message).await?;
        let kept = browser.evaluate("document.querySelector('#entry').value").await?;
        assert_eq!(kept, text, "{message}");
        browser.until("document.activeElement.id === 'entry' && document.title.startsWith('Error')").await?;
        let reported = browser.inspect("guestbook-refused").await?;
        // Chromium logs each answer that isn't a success.
        assert!(reported.len() == 1 && reported[0].contains("status of 422"), "{reported:?}");
    }
    Ok(())
}

/// Entries are confirmed and listed, newest first, whatever they contain.
async fn signs(browser: &mut Browser, url: &str) -> Result<(), BrowserError> {
    sign(browser, "221B Baker Street, London", 1).await?;
    sign(browser, "Platz der Republik 1, 11011 Berlin", 2).await?;
    assert_eq!(browser.inspect("guestbook").await?, NOTHING);
    // The page as the next guest sees it.
    browser.open(url).await?;
    browser.shows("2 entries").await?;
    save(Folder::Documentation, "guestbook", &browser.screenshot().await?)?;

    sign(browser, "<img src=x onerror=alert(1)> & \"Sons\"", 3).await?;
    sign(browser, &"W".repeat(200), 4).await?;
    assert_eq!(browser.inspect("guestbook-odd").await?, NOTHING);
    Ok(())
}

async fn sign(browser: &mut Browser, entry: &str, count: usize) -> Result<(), BrowserError> {
    browser.write("#entry", entry).await?;
    browser.click("button").await?;
    browser.until(&format!("{ENTRIES} === {count}")).await?;
    browser.shows("Thank you! Your entry is in the book.").await?;
    let newest = browser.evaluate("document.querySelector('#entries li .text').textContent").await?;
    assert_eq!(newest, entry);
    Ok(())
}
