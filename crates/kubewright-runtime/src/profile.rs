//! CPU profiles of the running process, as Go's `net/http/pprof` serves them. With the cargo feature `profiling`.
//!
//! ```no_run
//! # use kubewright_runtime::{manager::Manager, profile};
//! # fn example(manager: Manager) -> Manager {
//! manager.metrics_handler("/debug/pprof/profile", profile::cpu())
//! # }
//! ```
//!
//! ```console
//! $ curl -s 'http://127.0.0.1:8080/debug/pprof/profile?seconds=10' > cpu.pb
//! $ go tool pprof -top cpu.pb
//! ```
//!
//! A profile costs nothing while none is taken, and about a percent of the processor while one is: a signal interrupts
//! a thread a hundred times in each second of processor time and records its stack, of which the function names are
//! found at the end. Function names need a program that isn't stripped.
//!
//! Heap profiles depend on the allocator, which the program chooses: an allocator that can profile, such as jemalloc,
//! has a function for the profile, and [`Manager::metrics_handler`](crate::manager::Manager::metrics_handler) serves
//! it.

use std::{error::Error, time::Duration};

use axum::{
    extract::Query,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get},
};
use http::{StatusCode, header::CONTENT_TYPE};
use pprof::{ProfilerGuard, ProfilerGuardBuilder, protos::Message};
use serde::Deserialize;
use tokio::sync::Mutex;

/// The samples in a second of processor time, as Go takes them.
const FREQUENCY: i32 = 100;
/// How long a profile takes if the request doesn't say it.
const SECONDS: u64 = 30;
/// How long a profile may take.
const MOST_SECONDS: u64 = 300;
/// The libraries in which a stack can't be followed safely, because the signal may have interrupted them while they
/// hold a lock.
const BLOCKLIST: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// Held while a profile is taken.
static TAKEN: Mutex<()> = Mutex::const_new(());

#[derive(Deserialize)]
struct Parameters {
    seconds: Option<u64>,
}

/// Returns a handler that answers `GET` with a CPU profile of all threads, in the protobuf format of `pprof`. The
/// parameter `seconds` is how long it takes, by default 30 and at most 300. Only one profile is taken at a time;
/// another request is answered by 409.
///
/// A profile names functions, not data, but it lets a client make the process work: serve it where clients are
/// [authenticated](crate::metrics_server), or on loopback.
pub fn cpu() -> MethodRouter {
    get(profile)
}

async fn profile(Query(Parameters { seconds }): Query<Parameters>) -> Response {
    let seconds = seconds.unwrap_or(SECONDS);
    if !(1..=MOST_SECONDS).contains(&seconds) {
        let text = format!("seconds is {seconds}, must be between 1 and {MOST_SECONDS}\n");
        return (StatusCode::BAD_REQUEST, text).into_response();
    }
    let Ok(_taken) = TAKEN.try_lock() else {
        return (StatusCode::CONFLICT, "another profile is being taken: try again when it has ended\n").into_response();
    };
    match take(Duration::from_secs(seconds)).await {
        Ok(body) => ([(CONTENT_TYPE, "application/octet-stream")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("can't take a profile: {error}\n")).into_response(),
    }
}

async fn take(time: Duration) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    // The first profile of a process reads the program's debug information, which can take seconds.
    let start = || ProfilerGuardBuilder::default().frequency(FREQUENCY).blocklist(&BLOCKLIST).build();
    let guard = tokio::task::spawn_blocking(start).await??;
    tokio::time::sleep(time).await;
    // The names of the functions are read from it, too.
    Ok(tokio::task::spawn_blocking(move || encode(&guard)).await??)
}

fn encode(guard: &ProfilerGuard<'_>) -> Result<Vec<u8>, pprof::Error> {
    let profile = guard.report().build()?.pprof()?;
    Ok(profile.encode_to_vec())
}
