"""The official Python client against the cluster of KUBECONFIG."""

import json
import os
import threading
import time
import urllib.request

import pytest
from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.informer import ADDED, DELETED, MODIFIED, SharedInformer
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock
from kubernetes.stream import portforward, stream

NAMESPACE = "python"
GROUP = "python.clients.example.com"


def until(what, condition, seconds=30):
    """Waits for a condition, and returns its value."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"timed out waiting until {what}")


def cut_connections():
    """Closes all connections between clients and the API server."""
    urllib.request.urlopen(os.environ["KUBEWRIGHT_CUT"]).read()


def refused(code, reason, call):
    """Checks the code and the reason of an error, and returns its status."""
    with pytest.raises(ApiException) as caught:
        call()
    status = json.loads(caught.value.body)
    assert (caught.value.status, status["code"], status["reason"]) == (code, code, reason)
    return status


def pod(name, script):
    container = client.V1Container(name="main", image="busybox", command=["sh", "-c", script])
    spec = client.V1PodSpec(containers=[container], restart_policy="Never", termination_grace_period_seconds=0)
    return client.V1Pod(metadata=client.V1ObjectMeta(name=name, labels={"app": name}), spec=spec)


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data)


def deployment(name, replicas=0):
    labels = {"app": name}
    container = client.V1Container(name="main", image="busybox", command=["sleep", "1000"])
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels),
        spec=client.V1PodSpec(containers=[container], termination_grace_period_seconds=0),
    )
    spec = client.V1DeploymentSpec(
        replicas=replicas, selector=client.V1LabelSelector(match_labels=labels), template=template
    )
    return client.V1Deployment(metadata=client.V1ObjectMeta(name=name), spec=spec)


@pytest.fixture(scope="session")
def api():
    api = config.new_client_from_config()
    core = client.CoreV1Api(api)
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    accounts = lambda: core.list_namespaced_service_account(NAMESPACE).items
    until("the namespace has a service account", accounts)
    return api


@pytest.fixture(scope="session")
def core(api):
    return client.CoreV1Api(api)


@pytest.fixture(scope="session")
def apps(api):
    return client.AppsV1Api(api)


@pytest.fixture(scope="session")
def widgets(api):
    """The client of a custom kind."""
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    version["schema"] = {"openAPIV3Schema": schema}
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget"}
    spec = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
    definitions = client.ApiextensionsV1Api(api)
    name = f"widgets.{GROUP}"
    definitions.create_custom_resource_definition({"metadata": {"name": name}, "spec": spec})

    def is_established():
        conditions = definitions.read_custom_resource_definition(name).status.conditions or []
        return any(condition.type == "Established" and condition.status == "True" for condition in conditions)

    until("the kind is established", is_established)
    return client.CustomObjectsApi(api)


def test_replace_builtin(core, apps):
    core.create_namespaced_config_map(NAMESPACE, config_map("replaced", a="1"))
    found = core.read_namespaced_config_map("replaced", NAMESPACE)
    found.data["a"] = "2"
    assert core.replace_namespaced_config_map("replaced", NAMESPACE, found).data == {"a": "2"}

    apps.create_namespaced_deployment(NAMESPACE, deployment("replaced"))
    found = apps.read_namespaced_deployment("replaced", NAMESPACE)
    found.metadata.labels = {"tier": "web"}
    found.spec.template.spec.containers[0].env = [client.V1EnvVar(name="A", value="1")]
    # The Deployment controller writes the status at any time.
    found.metadata.resource_version = None
    replaced = apps.replace_namespaced_deployment("replaced", NAMESPACE, found)
    assert replaced.metadata.labels == {"tier": "web"}
    assert replaced.spec.template.spec.containers[0].env[0].value == "1"


def test_replace_custom(widgets):
    place = dict(group=GROUP, version="v1", namespace=NAMESPACE, plural="widgets")
    widget = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "one"}, "spec": {"size": 1}}
    widgets.create_namespaced_custom_object(body=widget, **place)
    found = widgets.get_namespaced_custom_object(name="one", **place)
    found["spec"]["size"] = 2
    replaced = widgets.replace_namespaced_custom_object(name="one", body=found, **place)
    assert (replaced["spec"]["size"], replaced["metadata"]["generation"]) == (2, 2)
    replaced["status"] = {"ready": True}
    widgets.replace_namespaced_custom_object_status(name="one", body=replaced, **place)
    found = widgets.get_namespaced_custom_object(name="one", **place)
    assert (found["status"], found["metadata"]["generation"]) == ({"ready": True}, 2)


def test_status_of_a_new_object(apps):
    created = apps.create_namespaced_deployment(NAMESPACE, deployment("fresh"))
    assert created.status.ready_replicas is None


def test_patch_json(core):
    core.create_namespaced_config_map(NAMESPACE, config_map("patched-json", a="1", b="1"))
    patch = [{"op": "test", "path": "/data/a", "value": "1"}, {"op": "replace", "path": "/data/a", "value": "2"}]
    patch.append({"op": "remove", "path": "/data/b"})
    assert core.patch_namespaced_config_map("patched-json", NAMESPACE, patch).data == {"a": "2"}


def test_patch_merge(api, core):
    core.create_namespaced_config_map(NAMESPACE, config_map("patched-merge", a="1", b="1"))
    patch = {"data": {"a": "2", "b": None}}
    patched = core.patch_namespaced_config_map(
        "patched-merge", NAMESPACE, patch, _content_type="application/merge-patch+json"
    )
    assert patched.data == {"a": "2"}


def test_patch_strategic(apps):
    apps.create_namespaced_deployment(NAMESPACE, deployment("patched"))
    sidecar = {"name": "sidecar", "image": "busybox"}
    patch = {"spec": {"template": {"spec": {"containers": [sidecar]}}}}
    patched = apps.patch_namespaced_deployment(
        "patched", NAMESPACE, patch, _content_type="application/strategic-merge-patch+json"
    )
    names = [container.name for container in patched.spec.template.spec.containers]
    assert sorted(names) == ["main", "sidecar"]


def applied(core, value, manager, **options):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": value}}
    return core.patch_namespaced_config_map(
        "applied", NAMESPACE, body, field_manager=manager, _content_type="application/apply-patch+yaml", **options
    )


def test_apply(core):
    first = applied(core, "1", "one")
    again = applied(core, "1", "one")
    assert first.metadata.resource_version == again.metadata.resource_version
    assert applied(core, "2", "one").data == {"a": "2"}
    status = refused(409, "Conflict", lambda: applied(core, "3", "two"))
    assert status["details"]["causes"][0]["reason"] == "FieldManagerConflict"
    assert applied(core, "3", "two", force=True).data == {"a": "3"}


def test_apply_dynamic(api):
    resource = dynamic.DynamicClient(api).resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dynamic"}, "data": {"a": "1"}}
    found = resource.server_side_apply(body=body, namespace=NAMESPACE, field_manager="python", name="dynamic")
    assert found.data.a == "1"
    assert resource.get(name="dynamic", namespace=NAMESPACE).metadata.managedFields[0].manager == "python"


def test_informer_resumes(core):
    seen, lock = [], threading.Lock()

    def handler(event):
        def note(found):
            with lock:
                seen.append((event, found.metadata.name, (found.data or {}).get("a")))

        return note

    informer = SharedInformer(core.list_namespaced_config_map, namespace=NAMESPACE, label_selector="watched=yes")
    for event in (ADDED, MODIFIED, DELETED):
        informer.add_event_handler(event, handler(event))
    labelled = config_map("first", a="1")
    labelled.metadata.labels = {"watched": "yes"}
    core.create_namespaced_config_map(NAMESPACE, labelled)
    informer.start()
    until("the informer has listed", lambda: (ADDED, "first", "1") in seen)
    cut_connections()
    labelled.metadata.name = "second"
    core.create_namespaced_config_map(NAMESPACE, labelled)
    core.patch_namespaced_config_map("first", NAMESPACE, {"data": {"a": "2"}})
    cut_connections()
    core.delete_namespaced_config_map("second", NAMESPACE)
    until("all changes are seen", lambda: (DELETED, "second", "1") in seen)
    informer.stop()
    expected = [(ADDED, "first", "1"), (ADDED, "second", "1"), (MODIFIED, "first", "2"), (DELETED, "second", "1")]
    assert seen == expected


def test_watch_ends(core):
    version = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    core.create_namespaced_config_map(NAMESPACE, config_map("watched", a="1"))
    events = watch.Watch().stream(
        core.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=1
    )
    assert [(event["type"], event["object"].metadata.name) for event in events] == [("ADDED", "watched")]


def test_paging(core):
    for index in range(5):
        body = config_map(f"page-{index}")
        body.metadata.labels = {"paged": "yes"}
        core.create_namespaced_config_map(NAMESPACE, body)
    sizes, names, token = [], [], None
    while True:
        page = core.list_namespaced_config_map(NAMESPACE, label_selector="paged=yes", limit=2, _continue=token)
        sizes.append(len(page.items))
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert (sizes, names) == ([2, 2, 1], [f"page-{index}" for index in range(5)])
    first = core.list_namespaced_config_map(NAMESPACE, limit=2)
    assert first.metadata._continue


def test_leader_election(core):
    # The client's lock reads the default configuration.
    config.load_kube_config()
    leading, renewed = threading.Event(), set()
    lock = ConfigMapLock("election", NAMESPACE, "candidate")
    election = electionconfig.Config(
        lock, lease_duration=3, renew_deadline=2, retry_period=1,
        onstarted_leading=leading.set, onstopped_leading=lambda: renewed.add("lost"),
    )
    thread = threading.Thread(target=leaderelection.LeaderElection(election).run, daemon=True)
    thread.start()
    assert leading.wait(10)

    def renewals():
        annotations = core.read_namespaced_config_map("election", NAMESPACE).metadata.annotations
        record = json.loads(annotations["control-plane.alpha.kubernetes.io/leader"])
        renewed.add(record["renewTime"])
        return len(renewed) >= 4

    until("the leader has renewed its lease", renewals)
    assert "lost" not in renewed
    assert thread.is_alive()


def test_logs(core):
    core.create_namespaced_pod(NAMESPACE, pod("logger", "echo one; echo two"))
    done = lambda: core.read_namespaced_pod("logger", NAMESPACE).status.phase == "Succeeded"
    until("the pod has ended", done)
    # As text, this version of the client returns the representation of bytes.
    read = lambda **options: core.read_namespaced_pod_log("logger", NAMESPACE, _preload_content=False, **options).data
    assert read() == b"one\ntwo\n"
    assert read(tail_lines=1) == b"two\n"


def test_logs_followed(core):
    core.create_namespaced_pod(NAMESPACE, pod("talker", "for i in 1 2 3; do echo $i; sleep 0.2; done"))
    started = lambda: core.read_namespaced_pod("talker", NAMESPACE).status.phase in ("Running", "Succeeded")
    until("the pod has started", started)
    lines = list(watch.Watch().stream(core.read_namespaced_pod_log, name="talker", namespace=NAMESPACE))
    assert lines == ["1", "2", "3"]


def test_scale(apps):
    apps.create_namespaced_deployment(NAMESPACE, deployment("scaled"))
    apps.patch_namespaced_deployment_scale("scaled", NAMESPACE, {"spec": {"replicas": 1}})

    def ready():
        status = apps.read_namespaced_deployment("scaled", NAMESPACE).status
        return status and status.ready_replicas == 1

    until("one replica is ready", ready)
    scale = apps.read_namespaced_deployment_scale("scaled", NAMESPACE)
    assert (scale.spec.replicas, scale.status.replicas, scale.status.selector) == (1, 1, "app=scaled")
    scale.spec.replicas = 0
    # The Deployment controller writes the status at any time.
    scale.metadata.resource_version = None
    # Zero replicas are left out.
    assert not apps.replace_namespaced_deployment_scale("scaled", NAMESPACE, scale).spec.replicas


def test_eviction(core):
    core.create_namespaced_pod(NAMESPACE, pod("evicted", "sleep 1000"))
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="evicted", namespace=NAMESPACE))
    core.create_namespaced_pod_eviction("evicted", NAMESPACE, eviction)

    def is_gone():
        pods = core.list_namespaced_pod(NAMESPACE, field_selector="metadata.name=evicted").items
        return not pods

    until("the pod is gone", is_gone)


def test_eviction_is_refused_by_a_budget(api, core):
    core.create_namespaced_pod(NAMESPACE, pod("guarded", "sleep 1000"))
    spec = client.V1PodDisruptionBudgetSpec(
        min_available=1, selector=client.V1LabelSelector(match_labels={"app": "guarded"})
    )
    budget = client.V1PodDisruptionBudget(metadata=client.V1ObjectMeta(name="guarded"), spec=spec)
    client.PolicyV1Api(api).create_namespaced_pod_disruption_budget(NAMESPACE, budget)
    running = lambda: core.read_namespaced_pod("guarded", NAMESPACE).status.phase == "Running"
    until("the pod runs", running)
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="guarded", namespace=NAMESPACE))
    evict = lambda: core.create_namespaced_pod_eviction("guarded", NAMESPACE, eviction)
    refused(429, "TooManyRequests", evict)


def runs(core, name, body):
    core.create_namespaced_pod(NAMESPACE, body)
    until("the pod runs", lambda: core.read_namespaced_pod(name, NAMESPACE).status.phase == "Running")


def test_exec(core):
    runs(core, "target", pod("target", "sleep 1000"))
    connect = core.connect_get_namespaced_pod_exec
    options = {"name": "target", "namespace": NAMESPACE, "stderr": True, "stdout": True, "tty": False}
    assert stream(connect, command=["echo", "hello"], stdin=False, **options) == "hello\n"
    script = ["sh", "-c", "read line; echo got $line; echo oops >&2; exit 3"]
    session = stream(connect, command=script, stdin=True, _preload_content=False, **options)
    session.write_stdin("text\n")
    session.run_forever(timeout=30)
    assert (session.read_stdout(), session.read_stderr(), session.returncode) == ("got text\n", "oops\n", 3)
    binary = stream(connect, command=["cat"], stdin=True, binary=True, _preload_content=False, **options)
    binary.write_stdin(b"\x00\xff")
    # The first message has no content: it shows that the connection is open.
    received = []
    read = lambda: received.append(binary.read_stdout(timeout=1) or b"") or b"".join(received)
    until("the bytes come back", lambda: read() == b"\x00\xff")
    binary.close()


def test_attach(core):
    body = pod("attached", "while read line; do echo got $line; done")
    body.spec.containers[0].stdin = True
    runs(core, "attached", body)
    connect = core.connect_get_namespaced_pod_attach
    options = {"stderr": True, "stdin": True, "stdout": True, "tty": False, "_preload_content": False}
    session = stream(connect, "attached", NAMESPACE, **options)
    session.write_stdin("text\n")
    assert session.readline_stdout(timeout=30) == "got text"
    session.close()


def test_port_forward(core):
    body = pod("server", "exec python3 -m http.server 8080 --bind $IP")
    source = client.V1EnvVarSource(field_ref=client.V1ObjectFieldSelector(field_path="status.podIP"))
    body.spec.containers[0].env = [client.V1EnvVar(name="IP", value_from=source)]
    runs(core, "server", body)

    def answer():
        forward = portforward(core.connect_get_namespaced_pod_portforward, "server", NAMESPACE, ports="8080")
        socket = forward.socket(8080)
        socket.setblocking(True)
        text = b""
        try:
            socket.sendall(b"GET / HTTP/1.0\r\n\r\n")
            while chunk := socket.recv(1024):
                text += chunk
        except ConnectionError:
            # The program doesn't listen yet, and the library closes the socket: before the request is written, or without having read it.
            pass
        return text

    until("the pod answers", lambda: b"200 OK" in answer())


def test_token(api, core):
    core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": "robot"}})
    request = {"spec": {"expirationSeconds": 600}}
    token = core.create_namespaced_service_account_token("robot", NAMESPACE, request).status.token
    own = client.Configuration.get_default_copy()
    config.load_kube_config(client_configuration=own)
    own.cert_file = own.key_file = None
    own.api_key = {"authorization": f"Bearer {token}"}
    robot = client.ApiClient(own)
    review = client.AuthenticationV1Api(robot).create_self_subject_review({})
    assert review.status.user_info.username == f"system:serviceaccount:{NAMESPACE}:robot"
    secrets = lambda: client.CoreV1Api(robot).list_namespaced_secret(NAMESPACE)
    status = refused(403, "Forbidden", secrets)
    assert 'cannot list resource "secrets"' in status["message"]
    own.api_key = {"authorization": "Bearer x"}
    refused(401, "Unauthorized", lambda: client.CoreV1Api(client.ApiClient(own)).list_namespaced_pod(NAMESPACE))


def test_errors(core):
    refused(404, "NotFound", lambda: core.read_namespaced_config_map("absent", NAMESPACE))
    created = core.create_namespaced_config_map(NAMESPACE, config_map("errors", a="1"))
    refused(409, "AlreadyExists", lambda: core.create_namespaced_config_map(NAMESPACE, config_map("errors")))
    core.patch_namespaced_config_map("errors", NAMESPACE, {"data": {"a": "2"}})
    replace = lambda: core.replace_namespaced_config_map("errors", NAMESPACE, created)
    refused(409, "Conflict", replace)
    status = refused(422, "Invalid", lambda: core.create_namespaced_config_map(NAMESPACE, config_map("No_Name")))
    assert status["details"]["causes"][0]["field"] == "metadata.name"
    refused(404, "NotFound", lambda: core.create_namespaced_config_map("nowhere", config_map("a")))


def test_deletion_answers(core):
    core.create_namespaced_pod(NAMESPACE, pod("deleted", "sleep 1000"))
    answer = core.delete_namespaced_pod("deleted", NAMESPACE)
    assert answer.metadata.name == "deleted"
    core.create_namespaced_config_map(NAMESPACE, config_map("deleted"))
    answer = core.delete_namespaced_config_map("deleted", NAMESPACE)
    assert (answer.kind, answer.status, answer.details.name) == ("Status", "Success", "deleted")


def test_version(api):
    version = client.VersionApi(api).get_code()
    assert (version.major, version.minor) == ("1", "36")
