//! Several clusters with one manager.

use std::{process::Stdio, time::Duration};

use tokio::{process::Command, time::timeout};

/// The timeout of the demo, which itself gives each check half a minute.
const TIMEOUT: Duration = Duration::from_secs(180);

#[tokio::test]
async fn one_of_three_clusters_goes_away_and_comes_back() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_kubewright-demo"));
    demo.args(["--clusters", "3"]).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(TIMEOUT, demo.output()).await.expect("the demo should end by itself").unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for line in
        ["one manager works on 3 clusters", "north goes away", "a third pod is ready in west", "north comes back"]
    {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    assert!(text.contains("all 9 checks passed"), "{text}");
}
