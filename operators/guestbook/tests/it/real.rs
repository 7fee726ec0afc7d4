//! Pages that really run: pods are processes, a Service leads to one of them, and a guest signs.

use guestbook_operator::api::v1::Guestbook;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::ResourceExt;
use kubewright_cluster::{Cluster, ImageTable, Pods, Program, faults::Faults};
use operator_kit::{World, eventually, minutes, soon};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::scene::{alive, book, gone, serves, status, told, without, words};

async fn world() -> World {
    let page = Program::executable(env!("CARGO_BIN_EXE_guestbook-page")).env("LISTEN", "$(POD_IP):8080");
    let images = ImageTable::empty().with("kubewright/guestbook", page);
    let cluster = Cluster::builder().pods(Pods::Run).images(images);
    let world = World::on(cluster, guestbook_operator::register, guestbook_operator::crds()).await;
    world.create(words(json!({"title": "The <Orchard> House", "greeting": "Thank you for staying with us."}))).await;
    world
}

/// The answer to a request, or nothing if there is none.
async fn ask(address: &str, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

/// The page at an address.
async fn page(address: &str) -> Option<String> {
    let answer = ask(address, "GET / HTTP/1.1\r\nHost: book\r\nConnection: close\r\n\r\n").await?;
    answer.starts_with("HTTP/1.1 200").then_some(answer)
}

/// Signs the book at an address, and tells whether it was thanked for.
async fn sign(address: &str, name: &str) -> bool {
    let form = format!("entry={name}");
    let request = format!(
        "POST /entries HTTP/1.1\r\nHost: book\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n{form}",
        form.len()
    );
    ask(address, &request).await.is_some_and(|answer| answer.starts_with("HTTP/1.1 303"))
}

/// Where the Service answers.
async fn address(world: &World) -> String {
    let service = world.get::<Service>("book").await;
    format!("{}:80", service.spec.unwrap().cluster_ip.unwrap())
}

/// Waits until the page that the Service leads to has all this.
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
async fn crash(world: &World, pod: &str) {
    let ip = world.get::<Pod>(pod).await.status.unwrap().pod_ip.unwrap();
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

#[tokio::test]
async fn a_guest_signs_and_takeovers_and_new_texts_lose_nothing() {
    // Every pod takes a second or two to be ready, and eight of them come one after another.
    let guest = async {
        let world = world().await;
        let operator = world.start(&Faults::new());
        world.create(book(3)).await;
        told(&world, "Ready", "PodsReady").await;
        told(&world, "Updated", "UpToDate").await;
        let service = address(&world).await;
        let text = shows(&service, &["<h1>The &lt;Orchard&gt; House</h1>", "Thank you for staying with us."]).await;
        let first = status(&world).await.active;
        assert!(text.contains(&format!("Served by <code>{first}</code>")), "{text}");
        eventually("a guest signs", async || sign(&service, "Ada").await).await;

        // The process crashes: its pod isn't ready until it has been tried again, so that a standby takes over.
        let others = without(&alive(&world).await, &first);
        crash(&world, &first).await;
        let second = serves(&world, &others).await;
        shows(&service, &["Ada", &second]).await;
        told(&world, "Ready", "PodsReady").await;
        eventually("a guest signs", async || sign(&service, "Bob").await).await;

        // The pod is deleted: another takes over, perhaps the one that crashed.
        let others = without(&alive(&world).await, &second);
        world.delete::<Pod>(&second).await;
        let third = serves(&world, &others).await;
        shows(&service, &["Ada", "Bob", &third]).await;

        // Other texts replace them all.
        told(&world, "Ready", "PodsReady").await;
        let before = alive(&world).await;
        world.edit::<ConfigMap>("words", json!({"data": {"title": "Our House"}})).await;
        told(&world, "Updated", "Rolling").await;
        told(&world, "Updated", "UpToDate").await;
        shows(&service, &["<h1>Our House</h1>", "Ada", "Bob"]).await;
        assert!(alive(&world).await.iter().all(|name| !before.contains(name)));

        world.delete::<Guestbook>("book").await;
        gone(&world).await;
        eventually("nobody answers", async || page(&service).await.is_none()).await;
        operator.stop().await;
    };
    timeout(minutes(3), guest).await.expect("it should take less than three minutes");
}

#[tokio::test]
async fn a_page_ends_within_a_second_of_being_told_so() {
    soon(async {
        let world = world().await;
        let operator = world.start(&Faults::new());
        world.create(book(1)).await;
        told(&world, "Ready", "PodsReady").await;
        let pod = world.pods().await.remove(0);
        let at = format!("{}:8080", pod.status.clone().unwrap().pod_ip.unwrap());
        shows(&at, &["No entries yet"]).await;
        // A guest whose connection stays open holds nothing up; its five seconds of grace would.
        let _idle = TcpStream::connect(&at).await.unwrap();
        operator.stop().await;
        let begun = world.now();
        world.delete::<Pod>(&pod.name_any()).await;
        eventually("it is gone", async || world.pods().await.is_empty()).await;
        assert!(world.now().duration_since(begun).as_secs_f64() < 3.0, "with time for a busy machine");
    })
    .await;
}
