//! The API types of `cache.testproject.org/v1`.

mod busybox;
mod memcached;
mod settings;
// +kubebuilder:scaffold:modules

pub use self::busybox::*;
pub use self::memcached::*;
pub use self::settings::*;
// +kubebuilder:scaffold:exports
