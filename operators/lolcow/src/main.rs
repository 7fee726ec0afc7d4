//! The operator's binary.

use kubewright::prelude::*;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let manager = Manager::from_args()?;
    Ok(lolcow_operator::register(manager).run().await?)
}
