//! `my.domain/v1alpha1`.

mod lolcow;

pub use self::lolcow::{Lolcow, LolcowSpec, LolcowStatus, MAX_GREETING};
