"""What the tests share: a cluster of their own, and the lines that `cargo xtask clients` reads."""

# ANCHOR: cluster
import subprocess

import pytest
from kubernetes import config


@pytest.fixture(scope="session")
def embedded_cluster(tmp_path_factory):
    """Starts an embedded cluster for the session, and returns a client for it."""
    kubeconfig = tmp_path_factory.mktemp("cluster") / "kubeconfig"
    command = ["kubewright", "cluster", "--wait", "--kubeconfig", str(kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()  # printed when the cluster is ready
        assert line.startswith("cluster ready"), line
        yield config.new_client_from_config(str(kubeconfig))
        process.terminate()
# ANCHOR_END: cluster


def pytest_runtest_logreport(report):
    """Prints one line for each test."""
    if report.when == "call" or report.outcome != "passed":
        case = report.nodeid.split("::test_")[-1].replace("_", "-")
        if report.passed:
            print(f"\nok python {case}")
        else:
            reason = getattr(getattr(report.longrepr, "reprcrash", None), "message", str(report.longrepr))
            print(f"\nFAIL python {case}: {' '.join(reason.split())}")
