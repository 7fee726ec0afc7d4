//! Deserialization and serialization of the kinds that most operators use, compiled once in this crate.
//!
//! Code that reads a type is generic, so each crate that reads it would compile its own copy: in a program of five
//! operators that was a megabyte for pods alone. When rustc optimises for size, or not at all, a crate uses the
//! instances that the crates below it have compiled. The linker drops what a program doesn't use.

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    batch::v1::Job,
    core::v1::{ConfigMap, Pod, Secret, Service},
};
use serde_json::{Error, Value};

use crate::from_text;

/// The functions of one kind.
#[derive(Debug)]
pub struct Code<K: 'static> {
    /// Reads an object from JSON.
    pub read: fn(&str) -> Result<K, Error>,
    /// Writes an object as JSON.
    pub write: fn(&K) -> Result<Vec<u8>, Error>,
    /// Converts an object to a JSON value.
    pub value: fn(&'static K) -> Result<Value, Error>,
}

macro_rules! precompiled {
    ($($name:ident $kind:ident)*) => {$(
        #[doc = concat!("The functions of [`", stringify!($kind), "`].")]
        pub static $name: Code<$kind> =
            Code { read: from_text, write: serde_json::to_vec, value: serde_json::to_value };
    )*};
}

precompiled! {
    CONFIG_MAP ConfigMap
    DEPLOYMENT Deployment
    JOB Job
    POD Pod
    SECRET Secret
    SERVICE Service
    STATEFUL_SET StatefulSet
}
