//! The page of a failure, in a browser.

use kubewright_browser::{Browser, BrowserError, DESKTOP};
use kubewright_simulation::{Budget, Scenario, story};

use crate::machine::{Behavior, notes_its_instance, register};

#[test]
fn a_failure_is_a_page_to_click_through() {
    let scenario = Scenario::new("notes", |manager| register(manager, Behavior::Forgets), notes_its_instance);
    let search = scenario.search(&Budget::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let files = story::write(directory.path(), "notes", &search.failures[0]).unwrap();
    let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&files[1]).unwrap()).unwrap();
    assert_eq!(json["records"].as_array().unwrap().len(), search.failures[0].outcome.history.records().len());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(look(&format!("file://{}", files[2].display()))).unwrap();
}

async fn look(url: &str) -> Result<(), BrowserError> {
    let mut browser = Browser::launch().await?;
    browser.resize(DESKTOP).await?;
    browser.open(url).await?;
    browser.shows("Scenario notes").await?;
    browser.shows("created-twice: there are 2 configmaps").await?;
    browser.shows("the operator dies after the write").await?;
    // The first fault, and then the moment after it, when the caches don't have the first instance yet.
    browser.click("#next").await?;
    browser.until("document.querySelector('[aria-selected=true] .fault') !== null").await?;
    let after = "document.querySelector('#rows [aria-selected=true]').nextElementSibling";
    browser.until(&format!("{after}.click() === undefined")).await?;
    browser
        .until("document.querySelector('#behind td')?.textContent.startsWith('ConfigMap default/instance-')")
        .await?;
    browser.click("#others").await?;
    browser.until("document.querySelectorAll('#rows [role=row]').length > 10").await?;
    assert_eq!(browser.inspect("simulation").await?, Vec::<String>::new());
    Ok(())
}
