//! Pages whose pods are processes, behind a Service, with a guest that signs.

use guestbook_operator::api::v1::Guestbook;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::ResourceExt;
use kubewright::simulation::{
    Span,
    env::{TestEnv, eventually, within_a_minute},
};
use kubewright_cluster::{Cluster, ImageTable, Pods, Program, faults::Faults};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::fixtures::{alive, book, gone, reported, serves, status, without, words};

async fn env() -> TestEnv {
    let page = Program::executable(env!("CARGO_BIN_EXE_guestbook-page")).env("LISTEN", "$(POD_IP):8080");
    let images = ImageTable::empty().with("kubewright/guestbook", page);
    let cluster = Cluster::builder().pods(Pods::Run).images(images);
    let env = TestEnv::on(cluster, guestbook_operator::register, guestbook_operator::crds()).await;
    env.create(words(json!({"title": "The <Orchard> House", "greeting": "Thank you for staying with us."}))).await;
    env
}

/// Sends a request, and returns the answer.
async fn ask(address: &str, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

/// Returns the page at an address.
async fn page(address: &str) -> Option<String> {
    let answer = ask(address, "GET / HTTP/1.1\r\nHost: book\r\nConnection: close\r\n\r\n").await?;
    answer.starts_with("HTTP/1.1 200").then_some(answer)
}

/// Signs the book at an address, and returns whether the entry was confirmed.
async fn sign(address: &str, name: &str) -> bool {
    let form = format!("entry={name}");
    let request = format!(
        "POST /entries HTTP/1.1\r\nHost: book\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n{form}",
        form.len()
    );
    ask(address, &request).await.is_some_and(|answer| answer.starts_with("HTTP/1.1 303"))
}

/// Returns the address of the Service.
async fn address(env: &TestEnv) -> String {
    let service = env.get::<Service>("book").await;
    format!("{}:80", service.spec.unwrap().cluster_ip.unwrap())
}

/// Waits until the page contains all parts.
async fn shows(address: &str, parts: &[&str]) -> String {
    let mut text = String::new();
    eventually(&format!("the page shows {parts:?}"), async || {
        text = page(address).await.unwrap_or_default();
        parts.iter().all(|part| text.contains(part))
    })
    .await;
    text
}

/// Kills the processes of a pod, as a crash would.
async fn crash(env: &TestEnv, pod: &str) {
    let ip = env.get::<Pod>(pod).await.status.unwrap().pod_ip.unwrap();
    let wanted = format!("LISTEN={ip}:8080");
    let mut killed = 0;
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()) {
            let id = process.file_name().to_string_lossy().into_owned();
            assert!(std::process::Command::new("kill").args(["-KILL", &id]).status().unwrap().success());
            killed += 1;
        }
    }
    assert_eq!(killed, 1, "the page is one process");
}

/// Returns how often the only container has been restarted.
fn restarts(pod: &Pod) -> i32 {
    let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()?.first());
    status.map_or(0, |container| container.restart_count)
}

#[tokio::test]
async fn a_guest_signs_and_takeovers_and_new_texts_lose_nothing() {
    // Every pod takes a second or two to become ready, and eight of them start one after another.
    let guest = async {
        let env = env().await;
        let operator = env.start(&Faults::new());
        env.create(book(3)).await;
        reported(&env, "Ready", "PodsReady").await;
        reported(&env, "Updated", "UpToDate").await;
        let service = address(&env).await;
        let text = shows(&service, &["<h1>The &lt;Orchard&gt; House</h1>", "Thank you for staying with us."]).await;
        let first = status(&env).await.active;
        assert!(text.contains(&format!("Served by <code>{first}</code>")), "{text}");
        eventually("a guest signs", async || sign(&service, "Ada").await).await;

        // The process crashes: its pod isn't ready until it has been probed again, so a standby pod takes over, unless
        // the process restarts and passes its probe before the operator sees it.
        crash(&env, &first).await;
        eventually("the process restarts", async || restarts(&env.get::<Pod>(&first).await) == 1).await;
        let mut second = String::new();
        eventually("a pod serves with the entry", async || {
            second = status(&env).await.active;
            page(&service).await.is_some_and(|text| text.contains("Ada") && text.contains(&second))
        })
        .await;
        eventually("a guest signs", async || sign(&service, "Bob").await).await;

        // The pod is deleted: another one takes over, possibly the one that crashed.
        let others = without(&alive(&env).await, &second);
        env.delete::<Pod>(&second).await;
        let third = serves(&env, &others).await;
        shows(&service, &["Ada", "Bob", &third]).await;

        // A changed ConfigMap replaces them all.
        reported(&env, "Ready", "PodsReady").await;
        let before = alive(&env).await;
        env.edit::<ConfigMap>("words", json!({"data": {"title": "Our House"}})).await;
        reported(&env, "Updated", "Rolling").await;
        reported(&env, "Updated", "UpToDate").await;
        shows(&service, &["<h1>Our House</h1>", "Ada", "Bob"]).await;
        assert!(alive(&env).await.iter().all(|name| !before.contains(name)));

        env.delete::<Guestbook>("book").await;
        gone(&env).await;
        eventually("nobody answers", async || page(&service).await.is_none()).await;
        operator.stop().await;
    };
    timeout(3.minutes(), guest).await.expect("it should take less than three minutes");
}

#[tokio::test]
async fn a_page_ends_within_a_second_of_sigterm() {
    within_a_minute(async {
        let env = env().await;
        let operator = env.start(&Faults::new());
        env.create(book(1)).await;
        reported(&env, "Ready", "PodsReady").await;
        let pod = env.pods().await.remove(0);
        let at = format!("{}:8080", pod.status.clone().unwrap().pod_ip.unwrap());
        shows(&at, &["No entries yet"]).await;
        // An open connection of a guest must not delay the shutdown by its grace period of five seconds.
        let _idle = TcpStream::connect(&at).await.unwrap();
        operator.stop().await;
        let begun = env.now();
        env.delete::<Pod>(&pod.name_any()).await;
        eventually("it is gone", async || env.pods().await.is_empty()).await;
        assert!(env.now().duration_since(begun).as_secs_f64() < 3.0, "with time for a busy machine");
    })
    .await;
}
