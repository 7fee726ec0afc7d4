//! The program as a user starts it.

use std::{net::TcpListener, process::Command};

const KUBECONFIG: &str = "\
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: nobody}}]
clusters: [{name: here, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: nobody, user: {}}]
";

#[test]
fn a_port_in_use_is_one_line_even_with_backtraces() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, KUBECONFIG).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_podset-operator"));
    program.arg("--kubeconfig").arg(&kubeconfig).arg(format!("--health-probe-bind-address={address}"));
    // The proxy doesn't exist, since requests to loopback addresses must not use it.
    for variable in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"] {
        program.env(variable, "http://127.0.0.1:9");
    }
    let output = program.args(["--log-level=off"]).env("RUST_BACKTRACE", "1").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    let expected = format!("Error: can't serve probes on {address}: ");
    assert!(said.starts_with(&expected) && said.lines().count() == 1, "{said}");
    assert!(said.contains("choose another with --health-probe-bind-address"), "{said}");
}
