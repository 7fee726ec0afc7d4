//! How versions of `FirstMate` are converted: by way of this one, in which objects are stored.

use kubewright::prelude::*;

use super::FirstMate;

/// The versions, for the manager. What differs between two of them is said where the other one's types are.
pub(crate) fn conversion() -> Hub<FirstMate> {
    let conversion = Hub::new();
    let conversion = conversion.spoke::<super::super::v2::FirstMate>();
    // +kubebuilder:scaffold:spokes
    conversion
}
