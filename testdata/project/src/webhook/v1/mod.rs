// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! The webhooks of version `v1`, one module per kind.

pub(crate) mod admiral;
pub(crate) mod captain;
pub(crate) mod firstmate;
pub(crate) mod pod;
// +kubebuilder:scaffold:modules
