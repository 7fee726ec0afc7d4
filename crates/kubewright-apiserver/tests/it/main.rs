//! Tests of the server by requests.

mod admission;
mod admission_beyond;
mod admission_order;
mod aggregation;
mod audit_log;
mod bad_input;
mod builtin_kinds;
mod conversion;
mod conversion_lies;
mod conversion_owners;
mod corpus;
mod custom;
mod custom_answers;
mod data_dir;
mod default_objects;
mod deletion;
mod discovery;
mod field_validation;
mod history;
mod http;
mod kinds;
mod kubelets;
mod limit_ranges;
mod limits;
mod managed_fields;
mod metadata;
mod negotiation;
mod node_access;
mod objects;
mod over_tls;
mod patching;
mod plugins;
mod pod_security;
mod policies;
mod priorities;
mod protobuf;
mod proxying;
mod races;
mod raw;
mod rbac;
mod reading;
mod resize;
mod reviews;
mod rules;
mod slow;
mod subresources;
mod tokens;
mod topology;
mod types;
mod watching;
mod webhook;
mod websocket;
mod wire;

use kubewright_apiserver::ApiServer;

/// A server, and a client of it.
fn start() -> (ApiServer, kube::Client) {
    let api = ApiServer::builder().build();
    let client = api.client();
    (api, client)
}

/// Asserts that a request failed with this code and a message that contains this text.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: kube::Result<T>, code: u16, message: &str) {
    match result.unwrap_err() {
        kube::Error::Api(status) => {
            assert_eq!(status.code, code, "{status:?}");
            assert!(status.message.contains(message), "{status:?}");
        }
        other => panic!("{other}"),
    }
}
