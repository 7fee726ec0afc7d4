//! The operators of `testdata/project` and `testdata/project-multigroup`, for the tests of what they are installed by.

use kubewright::prelude::*;

#[tokio::main]
async fn main() -> Result<(), kubewright::manager::ManagerError> {
    let manager = Manager::from_args()?;
    match std::env::var("GOLDEN").as_deref() {
        Ok("multigroup") => multigroup::register(manager).run().await,
        _ => golden::register(manager).run().await,
    }
}
