// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! The API types of `crew.testproject.org/v1`.

mod admiral;
mod captain;
mod firstmate;
// +kubebuilder:scaffold:modules

pub use self::admiral::*;
pub use self::captain::*;
pub use self::firstmate::*;
// +kubebuilder:scaffold:exports
