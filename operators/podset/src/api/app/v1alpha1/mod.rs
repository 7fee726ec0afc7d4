//! `app.example.com/v1alpha1`.

mod podset;

pub use self::podset::{PodSet, PodSetSpec, PodSetStatus};
