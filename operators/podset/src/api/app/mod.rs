//! The group `app.example.com`.

pub mod v1alpha1;
