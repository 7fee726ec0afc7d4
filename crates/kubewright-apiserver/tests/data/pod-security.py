"""Records what a Kubernetes API server answers about pods under the Pod Security Standards.

    python3 pod-security.py KUBECONFIG

Rewrites pod-security.json: the bodies, and a list of requests in order, each with the place of its body, the code of the answer, the
message of an error, and the warnings. The namespaces must not exist yet."""

import base64, http.client, json, os, ssl, subprocess, sys, tempfile, urllib.parse

FILE = __file__.removesuffix(".py") + ".json"
PREFIX = "pod-security.kubernetes.io/"


def container(name="c", **fields):
    return {"name": name, "image": "i", **fields}


def secured(name="c", **context):
    free = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"}}
    return container(name, securityContext={**free, **context})


def pod(*containers, annotations=None, **spec):
    metadata = {"name": "p", **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": list(containers) or [container()], **spec}}


def both(field, value):
    """A pod that sets a field of the security context itself, and in two containers."""
    context = {"securityContext": {field: value}}
    return pod(container("a", **context), container("b", **context), **context)


PODS = [
    pod(),
    pod(secured()),
    pod(secured("a"), container("b"), container("d")),
    pod(secured(), initContainers=[container("first")]),
    pod(secured(privileged=False, capabilities={"add": ["SYS_TIME", "NET_ADMIN"]}), secured("b", capabilities={"add": ["NET_RAW"], "drop": ["ALL"]})),
    pod(secured(capabilities={"add": ["NET_BIND_SERVICE", "CHOWN"], "drop": ["NET_RAW"]})),
    pod(secured(capabilities={"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]})),
    pod(container(securityContext={"privileged": True})),
    pod(container("a", securityContext={"privileged": True}), container("b", securityContext={"privileged": True})),
    pod(hostNetwork=True, hostPID=True),
    pod(hostIPC=True),
    pod(container(ports=[{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81, "hostPort": 9}])),
    pod(container("a", ports=[{"containerPort": 80, "hostPort": 80}]), container("b", ports=[{"containerPort": 81, "hostPort": 81}])),
    pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
    pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}, {"name": "n", "nfs": {"server": "s", "path": "/"}}, {"name": "e", "emptyDir": {}},
                 {"name": "h", "hostPath": {"path": "/x"}}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}]),
    pod(container(livenessProbe={"httpGet": {"host": "example.com", "port": 80}}), container("b", readinessProbe={"tcpSocket": {"host": "10.0.0.1", "port": 80}},
        lifecycle={"preStop": {"httpGet": {"host": "a.example.com", "port": 80}}})),
    pod(container(startupProbe={"tcpSocket": {"host": "10.0.0.1", "port": 80}})),
    pod(container(securityContext={"procMount": "Unmasked"}), hostUsers=False),
    pod(secured(procMount="Unmasked"), hostUsers=False),
    pod(secured(runAsNonRoot=False, runAsUser=0), hostUsers=False),
    both("seLinuxOptions", {"type": "spc_t", "level": "s0"}),
    both("seLinuxOptions", {"type": "container_engine_t"}),
    pod(container(securityContext={"seLinuxOptions": {"user": "u", "role": "r", "type": "container_t"}})),
    both("seccompProfile", {"type": "Unconfined"}),
    both("seccompProfile", {"type": "Localhost", "localhostProfile": "x"}),
    pod(container(securityContext={"seccompProfile": {"type": "Unconfined"}}), securityContext={"seccompProfile": {"type": "RuntimeDefault"}}),
    both("appArmorProfile", {"type": "Unconfined"}),
    pod(securityContext={"appArmorProfile": {"type": "RuntimeDefault"}}),
    pod(annotations={"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}),
    pod(annotations={"container.apparmor.security.beta.kubernetes.io/c": "localhost/x"}),
    pod(annotations={"seccomp.security.alpha.kubernetes.io/pod": "unconfined", "container.seccomp.security.alpha.kubernetes.io/c": "unconfined"}),
    pod(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}, {"name": "net.ipv4.tcp_rmem", "value": "1"}, {"name": "net.ipv4.tcp_keepalive_time", "value": "1"},
                                     {"name": "net.ipv4.ip_local_reserved_ports", "value": "1"}, {"name": "net.ipv4.tcp_syncookies", "value": "1"}]}),
    both("runAsNonRoot", False),
    pod(container(), secured("b"), securityContext={"runAsNonRoot": True}),
    both("runAsUser", 0),
    both("runAsUser", 1000),
    pod(secured(runAsUser=0)),
    pod(container(securityContext={"windowsOptions": {"hostProcess": True}}), securityContext={"windowsOptions": {"hostProcess": True}}, hostNetwork=True),
    pod(os={"name": "windows"}, securityContext={"runAsNonRoot": True}),
    pod(os={"name": "linux"}, securityContext={"runAsNonRoot": True}),
]

MODES = [
    {"enforce": "restricted"},
    {"enforce": "baseline"},
    {"warn": "restricted"},
    {"warn": "baseline", "enforce": "privileged"},
    {"enforce": "baseline", "warn": "restricted", "warn-version": "v1.24"},
    {"enforce": "restricted", "enforce-version": "v1.0"},
    {"enforce": "restricted", "enforce-version": "v1.20"},
    {"enforce": "restricted", "enforce-version": "v1.24"},
    {"enforce": "restricted", "enforce-version": "v1.34"},
    {"enforce": "restricted", "enforce-version": "v1.99"},
    {"enforce": "baseline", "enforce-version": "v1.18"},
    {"enforce": "baseline", "enforce-version": "v1.30"},
]


def namespace(name, labels):
    labels = {PREFIX + key: value for key, value in labels.items()}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def template(kind, version, place):
    spec = {"metadata": {"labels": {"app": "x"}}, "spec": pod(container(), hostNetwork=True)["spec"]}
    if kind in ("Job", "CronJob"):
        spec["spec"]["restartPolicy"] = "Never"
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": "t"}}
    at = body
    for field in place[:-1]:
        at = at.setdefault(field, {})
    at[place[-1]] = spec
    if kind in ("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet"):
        body["spec"]["selector"] = {"matchLabels": {"app": "x"}}
    if kind == "ReplicationController":
        body["spec"]["selector"] = {"app": "x"}
    if kind == "StatefulSet":
        body["spec"]["serviceName"] = "s"
    if kind == "CronJob":
        body["spec"]["schedule"] = "@daily"
    return body


def requests():
    spaces = "/api/v1/namespaces"
    for number, labels in enumerate(MODES):
        name = f"psa-{number}"
        yield "POST", spaces, namespace(name, labels)
        for one in PODS:
            yield "POST", f"{spaces}/{name}/pods?dryRun=All", one
    of = ("spec", "template")
    for plural, body in [
        ("/api/v1/namespaces/{}/podtemplates", template("PodTemplate", "v1", ("template",))),
        ("/api/v1/namespaces/{}/replicationcontrollers", template("ReplicationController", "v1", of)),
        ("/apis/apps/v1/namespaces/{}/replicasets", template("ReplicaSet", "apps/v1", of)),
        ("/apis/apps/v1/namespaces/{}/deployments", template("Deployment", "apps/v1", of)),
        ("/apis/apps/v1/namespaces/{}/daemonsets", template("DaemonSet", "apps/v1", of)),
        ("/apis/apps/v1/namespaces/{}/statefulsets", template("StatefulSet", "apps/v1", of)),
        ("/apis/batch/v1/namespaces/{}/jobs", template("Job", "batch/v1", of)),
        ("/apis/batch/v1/namespaces/{}/cronjobs", template("CronJob", "batch/v1", ("spec", "jobTemplate", "spec", "template"))),
    ]:
        for number in (0, 1, 3):
            yield "POST", plural.format(f"psa-{number}") + "?dryRun=All", body
    # Existing pods, and updates of them.
    yield "POST", spaces, namespace("psa-late", {})
    owner = [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u", "controller": True}]
    for name, one in [("b", pod()), ("a", pod()), ("n", pod(hostNetwork=True)), ("d", pod(secured())), ("c", pod())]:
        one["metadata"] = {"name": name, **({"ownerReferences": owner} if name in "abc" else {})}
        yield "POST", f"{spaces}/psa-late/pods", one
    for labels in [
        {"enforce": "baseline"}, {"enforce": "restricted"}, {"enforce": "baseline", "enforce-version": "v1.30"}, {"enforce": "privileged"},
        {"enforce": "strict"}, {"enforce-version": "1.30", "audit": "", "audit-version": "v1.01", "warn": "x", "warn-version": "v1.x"},
        {"enforce": "restricted"},
    ]:
        body = {"metadata": {"labels": {PREFIX + key: value for key, value in labels.items()}}}
        if labels.get("enforce") == "privileged":
            body["metadata"]["labels"][PREFIX + "enforce-version"] = None
        yield "PATCH", f"{spaces}/psa-late", body
    for body in [{"metadata": {"labels": {"x": "y"}}}, {"spec": {"containers": [{"name": "c", "image": "j"}]}}]:
        yield "PATCH", f"{spaces}/psa-late/pods/a", body
        yield "PATCH", f"{spaces}/psa-late/pods/d", body
    yield "PATCH", f"{spaces}/psa-late/pods/d/ephemeralcontainers", {"spec": {"ephemeralContainers": [container("debug")]}}
    yield "PATCH", f"{spaces}/psa-late/pods/d/status", {"status": {"message": "x"}}
    yield "POST", spaces, namespace("psa-bad", {"enforce": "Restricted", "warn-version": "v2.0"})


def connect(kubeconfig):
    view = subprocess.check_output(["kubectl", "--kubeconfig", kubeconfig, "config", "view", "--raw", "--minify", "-o", "json"])
    config = json.loads(view)
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("crt", "key")]
        for path, field in zip(paths, ("client-certificate-data", "client-key-data")):
            with open(path, "wb") as file:
                file.write(base64.b64decode(user[field]))
        context.load_cert_chain(*paths)
    url = urllib.parse.urlparse(cluster["server"])
    return http.client.HTTPSConnection(url.hostname, url.port, context=context)


def main():
    connection = connect(sys.argv[1])
    recorded, bodies = [], []
    for method, path, body in requests():
        kind = "application/json" if method == "POST" else "application/strategic-merge-patch+json"
        connection.request(method, path, json.dumps(body), {"Content-Type": kind})
        response = connection.getresponse()
        answer = json.loads(response.read())
        warnings = [json.loads(line.split(" - ", 1)[1]) for line in response.headers.get_all("Warning") or []]
        message = answer.get("message") if response.status >= 400 else None
        if body not in bodies:
            bodies.append(body)
        recorded.append([f"{method} {path}", bodies.index(body), response.status, message, warnings])
    lines = lambda values: ",\n".join(map(json.dumps, values))
    with open(FILE, "w") as file:
        file.write('{"bodies": [\n' + lines(bodies) + '\n], "requests": [\n' + lines(recorded) + "\n]}\n")


main()
