//! The program of the images in these tests: the test binary itself, run again with one test selected.
//!
//! It listens at `LISTEN` and speaks HTTP: `/` answers with `POD_NAME`, `/file?<path>` with 200 if the file exists and
//! 503 otherwise, `/header?<name>` with a header of the request, and any other path with 404. Connections are kept
//! alive. With `PLAY=count` it reads a connection to its end instead, and then answers with the number of bytes. With
//! `PLAY=health` it is a gRPC server with the health service, as `health` says.

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
};

use kubewright_cluster::{ImageTable, Program};

use crate::health;

/// The images of these tests: `busybox`, and `web`, `count` and `health`, which listen on their pod's port 8080.
pub(crate) fn images() -> ImageTable {
    let own = env::current_exe().expect("a path").to_string_lossy().into_owned();
    let player = Program::entrypoint([own.as_str(), "player::plays", "--exact", "--nocapture"])
        .env("LISTEN", "$(POD_IP):8080")
        .env("POD_NAME", "$(POD_NAME)");
    let table = ImageTable::default().with("web", player.clone());
    table.with("count", player.clone().env("PLAY", "count")).with("health", player.env("PLAY", "health"))
}

/// Serves if a container runs it; otherwise tests that it can.
#[test]
fn plays() {
    let asked = env::var("LISTEN");
    let listener = TcpListener::bind(asked.as_deref().unwrap_or("127.0.0.1:0")).expect("a free address");
    let address = listener.local_addr().expect("an address");
    if env::var("PLAY").as_deref() == Ok("health") {
        return health::serve(listener);
    }
    let serve = move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || if env::var("PLAY").is_ok() { count(stream) } else { answer(stream) });
        }
    };
    if asked.is_ok() {
        return serve();
    }
    thread::spawn(serve);
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /nothing HTTP/1.1\r\nconnection: close\r\n\r\n").expect("written");
    let mut text = String::new();
    BufReader::new(stream).read_line(&mut text).expect("an answer");
    assert_eq!(text, "HTTP/1.1 404 \r\n");
}

fn count(mut stream: TcpStream) {
    let mut bytes = Vec::new();
    // An interrupted connection gets no answer.
    if stream.read_to_end(&mut bytes).is_ok() {
        let _told = write!(stream, "{}", bytes.len());
    }
}

fn answer(mut stream: TcpStream) {
    let Ok(reading) = stream.try_clone() else { return };
    let mut lines = BufReader::new(reading).lines().map_while(Result::ok);
    while let Some(request) = lines.next() {
        let headers: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let target = request.split(' ').nth(1).unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (code, body) = match path {
            "/" => (200, env::var("POD_NAME").unwrap_or_default()),
            "/file" if Path::new(query).exists() => (200, String::new()),
            "/file" => (503, format!("no {query}")),
            "/header" => {
                let named = |line: &String| {
                    let (name, value) = line.split_once(": ")?;
                    name.eq_ignore_ascii_case(query).then(|| value.to_owned())
                };
                (200, headers.iter().find_map(named).unwrap_or_default())
            }
            "/redirect" => (302, format!("Found {query}")),
            _ => (404, String::new()),
        };
        let length = body.len();
        let location = if code == 302 { format!("location: {query}\r\n") } else { String::new() };
        if write!(stream, "HTTP/1.1 {code} \r\n{location}content-length: {length}\r\n\r\n{body}").is_err() {
            return;
        }
    }
}

/// Requests a path on a new connection, and returns status code and body; `None` without an answer.
pub(crate) async fn ask(address: &str, path: &str) -> Option<(u16, String)> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    // Shutting down the write side ends the connection, which would be kept alive otherwise.
    stream.shutdown().await.ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}
