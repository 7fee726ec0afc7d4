"""A test that starts its own cluster. The book shows it."""

# ANCHOR: example
from kubernetes import client


def test_own_cluster(embedded_cluster):
    core = client.CoreV1Api(embedded_cluster)
    greeting = {"metadata": {"name": "greeting"}, "data": {"text": "hello"}}
    core.create_namespaced_config_map("default", greeting)

    found = core.read_namespaced_config_map("greeting", "default")

    assert found.data == {"text": "hello"}
# ANCHOR_END: example
