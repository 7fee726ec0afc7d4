//! The program that runs in place of the image of the Lolcow's pods: see [`lolcow_operator::page`].

use kubewright::exit::MainError;
use lolcow_operator::page::{self, Arguments};
use tracing_subscriber::filter::LevelFilter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), MainError> {
    let arguments = Arguments::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(std::io::stderr).init();
    Ok(page::run(arguments).await?)
}
