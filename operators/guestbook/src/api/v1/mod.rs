//! `webapp.my.domain/v1`.

mod guestbook;

pub use self::guestbook::{Alias, Guestbook, GuestbookSpec, GuestbookStatus};
