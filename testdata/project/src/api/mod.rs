// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! The API types, one module per version.

pub mod v1;
// +kubebuilder:scaffold:modules
