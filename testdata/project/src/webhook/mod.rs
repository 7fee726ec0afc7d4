// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! The webhooks, one module per version.

pub(crate) mod v1;
// +kubebuilder:scaffold:modules
