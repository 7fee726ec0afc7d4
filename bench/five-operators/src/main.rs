//! All five operators in one manager, the program that the idle benchmarks start.

use kubewright::prelude::Manager;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let manager = podset_operator::register(at_operator::register(Manager::from_args()?));
    let manager = lolcow_operator::register(guestbook_operator::register(cronjob_operator::register(manager)));
    Ok(manager.run().await?)
}
