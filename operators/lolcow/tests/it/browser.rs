//! The page in a browser, at the node port, while the operator rolls out changes.

use std::{future::pending, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use kubewright::{condition, prelude::*};
use kubewright_browser::{Browser, BrowserError, Folder, save};
use kubewright_cluster::{Cluster, ImageTable, Pods, Program};
use lolcow_operator::api::v1alpha1::Lolcow;
use serde_json::{Value, json};

const CRD: &str = include_str!("../../config/crd/bases/my.domain_lolcows.yaml");
const NAME: &str = "lolcow-pod";
/// The timeout of every wait, generous because pods are processes and the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The accessibility problems of a correct page.
const NOTHING: [&str; 0] = [];

#[tokio::test]
async fn the_cow_in_a_browser_says_what_the_spec_says_where_it_says() {
    let page = Program::executable(env!("CARGO_BIN_EXE_lolcow-page")).env("LISTEN", "$(POD_IP):8080");
    let images = ImageTable::empty().with("ghcr.io/vsoch/lolcow-operator", page);
    let cluster = Cluster::builder().pods(Pods::Run).images(images).start().await.unwrap();
    cluster.apply_yaml(CRD).await.unwrap();
    let operator = lolcow_operator::register_at(Manager::new(cluster.client()), "127.0.0.1");
    tokio::select! {
        ended = operator.run_until(pending()) => panic!("the operator has ended: {ended:?}"),
        outcome = visit(&cluster) => outcome.unwrap(),
    }
    cluster.shutdown().await;
}

async fn visit(cluster: &Cluster) -> Result<(), BrowserError> {
    let cows = Api::<Lolcow>::default_namespaced(cluster.client());
    let edit = async |spec: Value| {
        cows.patch(NAME, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await.unwrap();
        ready(cluster).await
    };
    let greeting = "Hello, this is a message from the lolcow!";
    let lolcow = json!({"apiVersion": "my.domain/v1alpha1", "kind": "Lolcow", "metadata": {"name": NAME}, "spec": {"greeting": greeting}});
    cluster.apply_yaml(&lolcow.to_string()).await.unwrap();
    let url = ready(cluster).await;

    let mut browser = Browser::launch().await?;
    browser.open(&url).await?;
    says(&mut browser, greeting).await?;
    assert_eq!(browser.inspect("lolcow").await?, NOTHING);
    save(Folder::Documentation, "lolcow", &browser.screenshot().await?)?;
    holds_still(&mut browser).await?;

    // A changed greeting is rolled out at the same address.
    let greeting = "What, you have never seen a <b>flying</b> cow before? 漢字も言えます。".repeat(3);
    assert_eq!(edit(json!({"greeting": greeting})).await, url);
    browser.open(&url).await?;
    says(&mut browser, &greeting).await?;
    assert_eq!(browser.inspect("lolcow-changed").await?, NOTHING);

    // Without a greeting the cow tells a fortune.
    assert_eq!(edit(json!({"greeting": null})).await, url);
    browser.open(&url).await?;
    browser.until("document.querySelector('.cow').getAttribute('aria-label').length > 20").await?;
    assert_eq!(browser.inspect("lolcow-fortune").await?, NOTHING);

    // A changed port moves the page.
    let port: u16 = url.trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap();
    let other = if port == 32767 { 30000 } else { port + 1 };
    let moved = edit(json!({"greeting": "Here I am.", "port": other})).await;
    assert_eq!(moved, url.replace(&port.to_string(), &other.to_string()));
    browser.open(&moved).await?;
    says(&mut browser, "Here I am.").await?;
    let refused = browser.open(&url).await.unwrap_err();
    assert!(refused.to_string().ends_with("net::ERR_CONNECTION_REFUSED"), "{refused}");
    Ok(())
}

/// Waits until the page shows the spec, and no other pod does; returns its address.
async fn ready(cluster: &Cluster) -> String {
    let serves = |cow: &&Lolcow| {
        let status = cow.status.clone().unwrap_or_default();
        condition::is_true(&status.conditions, "Ready") && status.observed_generation == cow.metadata.generation
    };
    let all = |cows: &[&Lolcow]| !cows.is_empty() && cows.iter().all(serves);
    let cows = cluster.expect_within::<Lolcow>(TIMEOUT, all).await.unwrap();
    // The pods of the previous greeting may still be ending.
    cluster.expect_within::<Pod>(TIMEOUT, |pods| pods.len() == 1).await.unwrap();
    cows[0].status.clone().unwrap().url.unwrap()
}

/// Waits until the cow says the greeting, to sighted users and to screen readers.
async fn says(browser: &mut Browser, greeting: &str) -> Result<(), BrowserError> {
    let label = json!(format!("A cow says: {greeting}"));
    browser.until(&format!("document.querySelector('.cow').getAttribute('aria-label') === {label}")).await?;
    // Lines are broken in the balloon.
    let bare = json!(greeting.split_whitespace().collect::<String>());
    let lines =
        "[...document.querySelectorAll('.cow bdi')].map((line) => line.textContent).join('').replace(/\\s/g, '')";
    browser.until(&format!("{lines} === {bare}")).await
}

/// The picture moves, unless the user prefers reduced motion.
async fn holds_still(browser: &mut Browser) -> Result<(), BrowserError> {
    let moving = "document.getAnimations().filter((animation) => animation.playState === 'running').length";
    browser.until(&format!("{moving} > 3")).await?;
    browser.click("label[for=still]").await?;
    browser.until(&format!("{moving} === 0")).await?;
    browser.click("label[for=still]").await?;
    browser.until(&format!("{moving} > 3")).await
}
