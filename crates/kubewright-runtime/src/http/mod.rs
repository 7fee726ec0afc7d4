//! HTTP servers of a manager: addresses, shutdown, and detection of local requests.

mod address;
mod idle_connections;
mod local;
mod server;

use ::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

pub use self::{
    address::{AddressError, BindAddress},
    server::{BindError, Server},
};
pub(crate) use self::{
    local::{is_local, only_local},
    server::ServerOptions,
};

/// Returns a plain text response.
pub(crate) fn text(code: StatusCode, page: String) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (code, headers, page).into_response()
}
