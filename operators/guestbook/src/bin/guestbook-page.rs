//! The guestbook page's binary.

use clap::Parser;
use guestbook_operator::page::{self, Arguments};
use kubewright::exit::MainError;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), MainError> {
    page::run(Arguments::parse()).await.map_err(MainError::new)
}
