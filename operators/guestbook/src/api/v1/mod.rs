//! The API types of `webapp.my.domain/v1`.

mod guestbook;
// +kubebuilder:scaffold:modules

pub use self::guestbook::*;
// +kubebuilder:scaffold:exports
