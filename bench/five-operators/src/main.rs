//! All operators in one manager: what the benchmarks of an idle operator start.

use kubewright::prelude::Manager;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let manager = podset_operator::register(at_operator::register(Manager::from_args()?));
    let manager = lolcow_operator::register(guestbook_operator::register(cronjob_operator::register(manager)));
    Ok(manager.run().await?)
}
