//! The operator of `testdata/project`, for the tests of what it is installed by.

use kubewright::prelude::*;

#[tokio::main]
async fn main() -> Result<(), kubewright::manager::ManagerError> {
    golden::register(Manager::from_args()?).run().await
}
