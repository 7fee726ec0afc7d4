//! PodSet's operator, for the test of `kubewright explain`.

use kubewright::prelude::*;

#[tokio::main]
async fn main() -> Result<(), kubewright::manager::ManagerError> {
    podset_operator::register(Manager::from_args()?).run().await
}
