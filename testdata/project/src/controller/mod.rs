// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! The controllers, one module per kind.

pub(crate) mod admiral;
pub(crate) mod captain;
pub(crate) mod deployment;
pub(crate) mod firstmate;
// +kubebuilder:scaffold:modules
