// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! The operator's binary.

use kubewright::prelude::*;

#[tokio::main]
async fn main() -> Result<(), MainError> {
    let manager = Manager::from_args()?;
    Ok(project::register(manager).run().await?)
}
