//! The page as a program.

use std::{process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStdout, Command},
    time::timeout,
};

const DEADLINE: Duration = Duration::from_secs(30);

/// A running page with its own port.
struct Page {
    child: Child,
    address: String,
    printed: Vec<String>,
    _stdout: Lines<BufReader<ChildStdout>>,
}

async fn start(arguments: &[&str]) -> Page {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lolcow-page"));
    command.args(arguments).env("LISTEN", "127.0.0.1:0").stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut printed = Vec::new();
    loop {
        let line = timeout(DEADLINE, lines.next_line()).await.unwrap().unwrap().expect("it prints its address");
        if let Some(address) = line.strip_prefix(" * Running on http://") {
            return Page { child, address: address.into(), printed, _stdout: lines };
        }
        printed.push(line);
    }
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

#[tokio::test]
async fn it_prints_the_cow_and_serves_the_page() {
    let page = start(&["Oh my gosh, I am a cow in a container!"]).await;
    let balloon = "< Oh my gosh, I am a cow in a container! >";
    assert!(page.printed.iter().any(|line| line == balloon), "{:#?}", page.printed);
    assert!(page.printed.iter().any(|line| line.contains("(oo)")), "{:#?}", page.printed);
    let answer = get(&page.address).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("aria-label=\"A cow says: Oh my gosh, I am a cow in a container!\""), "{answer}");
}

#[tokio::test]
async fn greetings_that_look_like_options_are_greetings() {
    for greeting in ["--help", "-x", "--", "--listen"] {
        let page = start(&[greeting]).await;
        assert!(page.printed.contains(&format!("< {greeting} >")), "{:#?}", page.printed);
    }
}

#[tokio::test]
async fn sigterm_ends_it_at_once_and_its_connections_with_it() {
    let mut page = start(&["Moo"]).await;
    let mut kept = TcpStream::connect(&page.address).await.unwrap();
    kept.write_all(REQUEST).await.unwrap();
    let mut first = [0; 12];
    kept.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let pid = page.child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    // The client keeps the connection alive, and the page ends it.
    let mut rest = Vec::new();
    timeout(DEADLINE, kept.read_to_end(&mut rest)).await.expect("the connection ends").unwrap();
    let status = timeout(DEADLINE, page.child.wait()).await.expect("the page ends").unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(TcpStream::connect(&page.address).await.is_err());
}

/// Returns the page at an address, with its headers.
pub(crate) async fn get(address: &str) -> String {
    try_get(address).await.unwrap()
}

pub(crate) async fn try_get(address: &str) -> std::io::Result<String> {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    timeout(DEADLINE, ask).await?
}
