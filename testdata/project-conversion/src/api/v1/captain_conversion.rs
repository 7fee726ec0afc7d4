//! How versions of `Captain` are converted: by way of this one, in which objects are stored.

use kubewright::prelude::*;

use super::Captain;

/// The versions, for the manager. What differs between two of them is said where the other one's types are.
pub(crate) fn conversion() -> Hub<Captain> {
    let conversion = Hub::new();
    let conversion = conversion.spoke::<super::super::v1beta1::Captain>();
    let conversion = conversion.spoke::<super::super::v2alpha1::Captain>();
    // +kubebuilder:scaffold:spokes
    conversion
}
