//! The conversion of `Captain` between its versions, with this version as the hub and storage version.

use kubewright::prelude::*;

use super::Captain;

/// Returns the conversion. Differences between versions are declared at the types of the other versions.
pub(crate) fn conversion() -> Hub<Captain> {
    let conversion = Hub::new();
    let conversion = conversion.spoke::<super::super::v1beta1::Captain>();
    let conversion = conversion.spoke::<super::super::v2alpha1::Captain>();
    // +kubebuilder:scaffold:spokes
    conversion
}
