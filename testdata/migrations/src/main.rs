//! The operator's binary.

use kubewright::prelude::*;

// A controller mostly waits for the API server, so one thread is enough and the cheapest. Reconciles that compute for
// long need more than one: `#[tokio::main]`.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), MainError> {
    let manager = Manager::from_args()?;
    Ok(migrations::register(manager).run().await?)
}
