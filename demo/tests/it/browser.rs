//! A picture of the live view: the demo writes it once all samples are settled, and a browser shows it.

use std::{env, fs, process::Stdio, time::Duration};

use kubewright_browser::{Browser, Folder, PICTURES, Size, save};
use tokio::{process::Command, time::timeout};

/// The path of the README's picture.
const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/pictures/demo.svg");
/// The timeout of the demo, which itself gives the samples a minute and a half.
const TIMEOUT: Duration = Duration::from_secs(180);
/// One resource of each operator, as in the view.
const SAMPLES: [&str; 5] = [
    "at/at-sample",
    "podset/podset-sample",
    "cronjob/cronjob-sample",
    "guestbook/guestbook-sample",
    "lolcow/lolcow-pod",
];

#[tokio::test]
async fn the_live_view_shows_all_operators() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("demo.svg");
    let mut demo = Command::new(env!("CARGO_BIN_EXE_kubewright-demo"));
    demo.arg("--snapshot").arg(&file).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(TIMEOUT, demo.output()).await.expect("the demo should end by itself").unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let mut browser = Browser::launch().await.unwrap();
    browser.open(&format!("file://{}", file.display())).await.unwrap();
    let (width, height) = (side(&mut browser, "width").await, side(&mut browser, "height").await);
    browser.resize(Size { width, height, phone: false }).await.unwrap();
    let text = browser.evaluate("document.documentElement.textContent").await.unwrap();
    for sample in SAMPLES {
        assert!(text.as_str().unwrap().contains(sample), "{sample} in {text}");
    }
    let text = text.as_str().unwrap();
    assert!(!text.contains("Liveness probe failed"), "a container is probed before it listens: {text}");
    save(Folder::Screenshots, "demo", &browser.screenshot().await.unwrap()).unwrap();
    if env::var_os(PICTURES).is_some() {
        fs::copy(&file, README).unwrap();
    }
}

/// Returns the length of a side of the picture in pixels.
async fn side(browser: &mut Browser, side: &str) -> u32 {
    let value = browser.evaluate(&format!("document.documentElement.{side}.baseVal.value")).await.unwrap();
    u32::try_from(value.as_u64().unwrap()).unwrap()
}
