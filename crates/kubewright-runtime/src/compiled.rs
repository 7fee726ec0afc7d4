//! What nearly every operator reads and writes, compiled here once.
//!
//! What reads a type is generic, so each crate that reads it would compile it for itself: in a program of five operators that
//! was a megabyte for pods alone. Where Rust optimises for size, or not at all, a crate takes what the crates below it have
//! compiled already. What a program doesn't use, the linker leaves out.

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    batch::v1::Job,
    core::v1::{ConfigMap, Pod, Secret, Service},
};
use serde_json::{Error, Value};

use crate::cache::from_text;

/// Of one kind.
#[derive(Debug)]
pub struct Code<K: 'static> {
    /// From the server.
    pub read: fn(&str) -> Result<K, Error>,
    /// To the server.
    pub write: fn(&K) -> Result<Vec<u8>, Error>,
    /// To be compared.
    pub value: fn(&'static K) -> Result<Value, Error>,
}

macro_rules! compiled {
    ($($name:ident $kind:ident)*) => {$(
        #[doc = concat!("Of [`", stringify!($kind), "`].")]
        pub static $name: Code<$kind> =
            Code { read: from_text, write: serde_json::to_vec, value: serde_json::to_value };
    )*};
}

compiled! {
    CONFIG_MAP ConfigMap
    DEPLOYMENT Deployment
    JOB Job
    POD Pod
    SECRET Secret
    SERVICE Service
    STATEFUL_SET StatefulSet
}
