//! The webhooks of version `v1`, one module per kind.

pub(crate) mod cronjob;
// +kubebuilder:scaffold:modules

#[cfg(test)]
mod tests;
