//! `cnat.d2iq.com/v1alpha1`.

mod at;

pub use self::at::{At, AtSpec, AtStatus, Phase};
