//! The conversion of `FirstMate` between its versions, with this version as the hub and storage version.

use kubewright::prelude::*;

use super::FirstMate;

/// Returns the conversion. Differences between versions are declared at the types of the other versions.
pub(crate) fn conversion() -> Hub<FirstMate> {
    let conversion = Hub::new();
    let conversion = conversion.spoke::<super::super::v2::FirstMate>();
    // +kubebuilder:scaffold:spokes
    conversion
}
