//! The operator's binary.

use kubewright::prelude::*;

#[tokio::main]
async fn main() -> Result<(), MainError> {
    let manager = Manager::from_args()?;
    Ok(migrations::register(manager).run().await?)
}
