//! CPU profiles on the metrics server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use kubewright_runtime::profile;
use prost::Message;

/// The parts of a profile that name functions (<https://github.com/google/pprof/blob/main/proto/profile.proto>).
#[derive(Message)]
struct Profile {
    #[prost(bytes = "vec", repeated, tag = "2")]
    samples: Vec<Vec<u8>>,
    #[prost(string, repeated, tag = "6")]
    strings: Vec<String>,
}

#[inline(never)]
fn multiply_for_the_profile(until: &AtomicBool) -> u64 {
    let mut product = 1u64;
    while !until.load(Ordering::Relaxed) {
        for number in 1..10_000u64 {
            product = product.wrapping_mul(number | 1);
        }
    }
    product
}

async fn get(address: std::net::SocketAddr, query: &str) -> (u16, Vec<u8>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET /debug/pprof/profile{query} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    let end = response.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let code = String::from_utf8_lossy(&response[9..12]).parse().unwrap();
    (code, response[end + 4..].to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_names_the_functions_that_run() {
    let router = axum::Router::new().route("/debug/pprof/profile", profile::cpu());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let until = Arc::new(AtomicBool::new(false));
    let worker = thread::spawn({
        let until = until.clone();
        move || multiply_for_the_profile(&until)
    });

    let (one, other) = tokio::join!(get(address, "?seconds=2"), get(address, "?seconds=2"));
    let (profile, refused) = if one.0 == 200 { (one, other) } else { (other, one) };
    assert_eq!((profile.0, refused.0), (200, 409), "one at a time");
    let profile = Profile::decode(&*profile.1).unwrap();
    assert!(!profile.samples.is_empty());
    let is_named = profile.strings.iter().any(|name| name.contains("multiply_for_the_profile"));
    assert!(is_named, "{:?}", profile.strings);
    assert_eq!(get(address, "?seconds=1").await.0, 200, "it can be taken again");
    for seconds in ["0", "301", "x"] {
        assert_eq!(get(address, &format!("?seconds={seconds}")).await.0, 400, "{seconds}");
    }
    until.store(true, Ordering::Relaxed);
    worker.join().unwrap();
    server.abort();
}
