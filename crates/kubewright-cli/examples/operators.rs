//! Three operators in one program, for the tests of `kubewright manifests`.

use kubewright::prelude::*;

#[tokio::main]
async fn main() -> Result<(), kubewright::manager::ManagerError> {
    let manager = podset_operator::register(at_operator::register(Manager::from_args()?));
    cronjob_operator::register(manager).run().await
}
