//! The At operator by itself, for the tests of what it is installed by.

use kubewright::prelude::*;

#[tokio::main]
async fn main() -> Result<(), kubewright::manager::ManagerError> {
    at_operator::register(Manager::from_args()?).run().await
}
