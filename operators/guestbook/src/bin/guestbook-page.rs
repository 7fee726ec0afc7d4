//! The guestbook page's binary.

use clap::Parser;
use guestbook_operator::page::{self, Arguments};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    page::run(Arguments::parse()).await
}
