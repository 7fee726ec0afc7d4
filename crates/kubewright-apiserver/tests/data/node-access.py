"""Records what a Kubernetes API server with `--authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction` answers nodes.

    python3 node-access.py KUBECONFIG

Rewrites node-access.json: the objects that exist, and a list of requests in order, each with its user, its body, the code of the answer
and the message of an error, or the status of a review. `{uid:PATH}` in a body stands for the UID of an object. Nothing else may run
on the cluster, and the objects must not exist yet."""

import base64, http.client, json, re, ssl, subprocess, sys, tempfile, time, urllib.parse

FILE = __file__.removesuffix(".py") + ".json"
NS = "/api/v1/namespaces/default"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
STORAGE = "/apis/storage.k8s.io/v1"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
REVIEWS = "/apis/authorization.k8s.io/v1"
PROBE = {"app.kubernetes.io/x": "y"}


def named(name, **rest):
    return {"metadata": {"name": name}, **rest}


def pod(name, node, **spec):
    spec = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False, **spec}
    return named(name, spec={**spec, **({"nodeName": node} if node else {})})


def volume(name, **source):
    return {"name": name, **source}


def slice_of(name, **spec):
    return named(name, spec={"driver": "d.example.com", "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}, **spec})


def attachment(name, node):
    return named(name, spec={"attacher": "a.example.com", "nodeName": node, "source": {"persistentVolumeName": "v1"}})


def persistent(name, claim, secret):
    reference = {"claimRef": {"namespace": "default", "name": claim}} if claim else {}
    csi = {"driver": "d.example.com", "volumeHandle": name, "nodeStageSecretRef": {"namespace": "default", "name": secret},
           "controllerPublishSecretRef": {"namespace": "default", "name": "controller"}}
    return named(name, spec={"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "", "csi": csi, **reference})


def claim(name, volume=None):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""}
    return named(name, spec={**spec, **({"volumeName": volume} if volume else {})})


OBJECTS = [
    ("/api/v1/nodes", named("a")),
    ("/api/v1/nodes", named("b")),
    (f"{NS}/serviceaccounts", named("acc")),
    (f"{NS}/serviceaccounts", named("other")),
    (f"{NS}/secrets", named("s1")),
    (f"{NS}/secrets", named("s2")),
    (f"{NS}/configmaps", named("c1")),
    (f"{NS}/persistentvolumeclaims", claim("claim1", "v1")),
    (f"{NS}/persistentvolumeclaims", claim("claim2")),
    ("/api/v1/persistentvolumes", persistent("v1", "claim1", "stage")),
    ("/api/v1/persistentvolumes", persistent("v2", None, "stage2")),
    (f"{STORAGE}/volumeattachments", attachment("va1", "a")),
    (f"{STORAGE}/volumeattachments", attachment("va2", "b")),
    (f"{STORAGE}/csidrivers", named("d.example.com", spec={"tokenRequests": [{"audience": "driver"}]})),
    (SLICES, slice_of("sa", nodeName="a")),
    (SLICES, slice_of("sb", nodeName="b")),
    (LEASES, named("a")),
    (LEASES, named("b")),
    (f"{STORAGE}/csinodes", named("a", spec={"drivers": []})),
    (f"{STORAGE}/csinodes", named("b", spec={"drivers": []})),
    (f"{NS}/pods", pod("pa", "a", serviceAccountName="acc", imagePullSecrets=[{"name": "pull"}], volumes=[
        volume("s", secret={"secretName": "s1"}), volume("c", configMap={"name": "c1"}),
        volume("p", persistentVolumeClaim={"claimName": "claim1"}), volume("e", emptyDir={}),
        volume("t", projected={"sources": [{"serviceAccountToken": {"path": "t", "audience": "vault"}}]})],
        resourceClaims=[{"name": "r", "resourceClaimName": "rc1"}])),
    (f"{NS}/pods", pod("pb", "b", serviceAccountName="other", volumes=[volume("s", secret={"secretName": "s2"})])),
    (f"{NS}/pods", pod("pw", None, serviceAccountName="acc", volumes=[volume("s", secret={"secretName": "s3"})])),
]

MIRROR = {"kubernetes.io/config.mirror": "h", "kubernetes.io/config.source": "file"}


def mirror(name="m", annotations=MIRROR, node="a", owner=(), **spec):
    owner = {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "{uid:/api/v1/nodes/a}", "controller": True, **dict(owner)}
    made = pod(name, node, **spec)
    made["metadata"].update(annotations=annotations, ownerReferences=[owner])
    del made["spec"]["automountServiceAccountToken"]
    return made


def owned(*owners):
    made = mirror()
    made["metadata"]["ownerReferences"] = list(owners)
    return made


def token(*audiences, **bound):
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "pa", "uid": f"{{uid:{NS}/pods/pa}}", **bound}
    reference = {key: value for key, value in reference.items() if value is not None}
    spec = {"audiences": list(audiences), "boundObjectRef": reference}
    return {"spec": spec}


def review(verb, resource, group="", subresource="", namespace="default", name="", user="system:node:a", groups=("system:nodes",), fields=None):
    attributes = {"verb": verb, "resource": resource, "group": group, "subresource": subresource, "namespace": namespace, "name": name}
    attributes = {key: value for key, value in attributes.items() if value}
    if fields:
        attributes["fieldSelector"] = fields
    return ("admin", f"POST {REVIEWS}/subjectaccessreviews", {"spec": {"user": user, "groups": list(groups), "resourceAttributes": attributes}})


def equal(*values):
    return {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": list(values)}]}


def csr(signer, name):
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/O=system:nodes/CN={name}",
                               "-keyout", f"{folder}/key"], capture_output=True, check=True).stdout
    return named("csr", spec={"signerName": signer, "usages": ["digital signature", "client auth"], "request": base64.b64encode(made).decode()})


def patch(request, body):
    return ("a", f"PATCH {request}?dryRun=All", body)


def labelled(*labels):
    return {"metadata": {"labels": {label: "x" for label in labels}}}


READS = [("a", f"GET {path}", None) for path in [
    f"{NS}/secrets", f"{NS}/secrets/s1", f"{NS}/secrets/s2", f"{NS}/secrets/s3", f"{NS}/secrets/none", f"{NS}/secrets/pull", f"{NS}/secrets/stage",
    f"{NS}/secrets/stage2", f"{NS}/secrets/controller", "/api/v1/secrets", f"{NS}/secrets?fieldSelector=metadata.name%3Ds1",
    f"{NS}/secrets?fieldSelector=metadata.name%3Ds2", "/api/v1/secrets?fieldSelector=metadata.name%3Ds1",
    f"{NS}/configmaps/c1", f"{NS}/configmaps/c2", f"{NS}/configmaps", "/api/v1/namespaces/kube-system/configmaps/c1",
    f"{NS}/persistentvolumeclaims/claim1", f"{NS}/persistentvolumeclaims/claim2", f"{NS}/persistentvolumeclaims", f"{NS}/persistentvolumeclaims/claim1/status",
    "/api/v1/persistentvolumes/v1", "/api/v1/persistentvolumes/v2", "/api/v1/persistentvolumes/v3", "/api/v1/persistentvolumes",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/rc1", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/rc2",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
    f"{STORAGE}/volumeattachments/va1", f"{STORAGE}/volumeattachments/va2", f"{STORAGE}/volumeattachments",
    f"{NS}/serviceaccounts/acc", f"{NS}/serviceaccounts/other", f"{NS}/serviceaccounts",
    f"{LEASES}/a", f"{LEASES}/b", LEASES, "/apis/coordination.k8s.io/v1/namespaces/default/leases/a",
    f"{STORAGE}/csinodes/a", f"{STORAGE}/csinodes/b", f"{STORAGE}/csinodes", f"{STORAGE}/csidrivers",
    f"{SLICES}/sa", f"{SLICES}/sb", SLICES, f"{SLICES}?fieldSelector=spec.nodeName%3Da", f"{SLICES}?fieldSelector=spec.nodeName%3Db",
    f"{SLICES}?fieldSelector=spec.nodeName!%3Db",
    "/api/v1/nodes", "/api/v1/nodes/a", "/api/v1/nodes/b", "/api/v1/nodes/a/status", "/api/v1/nodes?fieldSelector=metadata.name%3Da",
    f"{NS}/pods", "/api/v1/pods", "/api/v1/pods?fieldSelector=spec.nodeName%3Da", "/api/v1/pods?fieldSelector=spec.nodeName%3Db",
    "/api/v1/pods?fieldSelector=spec.nodeName%3Da,status.phase%3DPending", f"{NS}/pods/pa", f"{NS}/pods/pb", f"{NS}/pods/pw",
    f"{NS}/pods?fieldSelector=metadata.name%3Dpa", f"{NS}/pods?fieldSelector=metadata.name%3Dpb", f"{NS}/pods/pa/log", f"{NS}/pods/pa/status",
    "/api/v1/services", f"{NS}/endpoints", "/apis/node.k8s.io/v1/runtimeclasses", "/apis/apps/v1/deployments", "/api/v1/namespaces", "/metrics", "/version"]]

WRITES = [
    ("a", "POST /api/v1/nodes?dryRun=All", named("c")),
    ("a", "POST /api/v1/nodes?dryRun=All", {"metadata": {"generateName": "c-"}}),
    ("c", "POST /api/v1/nodes?dryRun=All", named("c")),
    ("c", "POST /api/v1/nodes?dryRun=All", {"metadata": {"name": "c", "labels": {"kubernetes.io/os": "linux", "app": "x", "node.kubernetes.io/x": "y"}}}),
    ("c", "POST /api/v1/nodes?dryRun=All", {"metadata": {"name": "c", "labels": {"node-restriction.kubernetes.io/z": "", "a.k8s.io/x": "", "node-role.kubernetes.io/x": ""}}}),
    ("c", "POST /api/v1/nodes?dryRun=All", named("c", spec={"taints": [{"key": "k", "effect": "NoSchedule"}]})),
    ("a", "DELETE /api/v1/nodes/a", None),
    ("a", "DELETE /api/v1/nodes/b", None),
    patch("/api/v1/nodes/a", labelled("app", "kubernetes.io/hostname")),
    patch("/api/v1/nodes/a", labelled("app.kubernetes.io/x", "node-restriction.kubernetes.io/y")),
    patch("/api/v1/nodes/b", labelled("app")),
    patch("/api/v1/nodes/a", {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
    patch("/api/v1/nodes/a", {"spec": {"unschedulable": True}}),
    patch("/api/v1/nodes/a", {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "b", "uid": "u"}]}}),
    patch("/api/v1/nodes/a", {"spec": {"configSource": {"configMap": {"namespace": "n", "name": "m", "kubeletConfigKey": "k"}}}}),
    patch("/api/v1/nodes/a/status", {"status": {"phase": "Running"}}),
    patch("/api/v1/nodes/a/status", labelled("app.kubernetes.io/x")),
    patch("/api/v1/nodes/b/status", {"status": {"phase": "Running"}}),
    ("a", f"POST {NS}/pods?dryRun=All", mirror()),
    ("a", f"POST {NS}/pods?dryRun=All", mirror(annotations={})),
    ("a", f"POST {NS}/pods?dryRun=All", mirror(node="b")),
    ("a", f"POST {NS}/pods?dryRun=All", mirror(node=None)),
    ("a", f"POST {NS}/pods?dryRun=All", owned()),
    ("a", f"POST {NS}/pods?dryRun=All", owned({"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "x"}, {"apiVersion": "v1", "kind": "Node", "name": "b", "uid": "y"})),
    ("a", f"POST {NS}/pods?dryRun=All", mirror(owner={"name": "b"})),
    ("a", f"POST {NS}/pods?dryRun=All", mirror(owner={"apiVersion": "v2"})),
    ("a", f"POST {NS}/pods?dryRun=All", mirror(owner={"controller": False})),
    ("a", f"POST {NS}/pods?dryRun=All", mirror(owner={"blockOwnerDeletion": True})),
    ("c", f"POST {NS}/pods?dryRun=All", mirror(node="c", owner={"name": "c"})),
    ("a", f"POST {NS}/pods?dryRun=All", mirror(volumes=[volume("v", configMap={"name": "c"})])),
    ("a", f"POST {NS}/pods?dryRun=All", mirror(volumes=[volume("v", persistentVolumeClaim={"claimName": "c"})])),
    ("a", f"POST {NS}/pods?dryRun=All", mirror(volumes=[volume("v", csi={"driver": "c"})])),
    ("a", f"POST {NS}/pods?dryRun=All", mirror(volumes=[volume("v", ephemeral={"volumeClaimTemplate": {"spec": claim("c")["spec"]}})])),
    ("a", f"POST {NS}/pods?dryRun=All", mirror(volumes=[volume("v", projected={"sources": [{"configMap": {"name": "c"}}]})])),
    ("a", f"POST {NS}/pods?dryRun=All", mirror(volumes=[volume("v", projected={"sources": [{"downwardAPI": {"items": []}}]}), volume("e", emptyDir={}), volume("h", hostPath={"path": "/"})])),
    ("a", f"POST {NS}/pods?dryRun=All", mirror(resourceClaims=[{"name": "r", "resourceClaimName": "rc1"}])),
    ("a", f"PUT {NS}/pods/pa?dryRun=All", pod("pa", "a")),
    ("a", f"DELETE {NS}/pods/pb?dryRun=All", None),
    ("a", f"DELETE {NS}/pods/pa?dryRun=All", None),
    ("a", f"DELETE {NS}/pods/none?dryRun=All", None),
    ("a", f"DELETE {NS}/pods?dryRun=All", None),
    patch(f"{NS}/pods/pa", labelled("x")),
    patch(f"{NS}/pods/pa/status", {"status": {"phase": "Running"}}),
    patch(f"{NS}/pods/pa/status", labelled("x")),
    patch(f"{NS}/pods/pa/status", {"status": {"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "other"}]}}),
    patch(f"{NS}/pods/pa/status", {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "other", "requestMappings": [
        {"containerName": "c", "resourceName": "e.example.com/x", "requestName": "q"}]}}}),
    patch(f"{NS}/pods/pb/status", {"status": {"phase": "Running"}}),
    ("a", f"POST {NS}/pods/pb/eviction?dryRun=All", {"apiVersion": "policy/v1", "kind": "Eviction", **named("pb")}),
    ("a", f"POST {NS}/pods/none/eviction?dryRun=All", {"apiVersion": "policy/v1", "kind": "Eviction", **named("none")}),
    ("a", f"POST {NS}/pods/pa/eviction?dryRun=All", {"apiVersion": "policy/v1", "kind": "Eviction", **named("pa")}),
    ("a", f"POST {NS}/pods/pa/binding?dryRun=All", {"apiVersion": "v1", "kind": "Binding", **named("pa", target={"kind": "Node", "name": "a"})}),
    ("a", f"POST {NS}/secrets?dryRun=All", named("x")),
    ("a", f"DELETE {NS}/secrets/s1?dryRun=All", None),
    ("a", f"POST {NS}/events?dryRun=All", {**named("x"), "involvedObject": {"namespace": "default"}}),
    patch(f"{NS}/persistentvolumeclaims/claim1/status", {"status": {"capacity": {"storage": "2Gi"}, "conditions": [{"type": "X", "status": "True"}]}}),
    patch(f"{NS}/persistentvolumeclaims/claim2/status", {"status": {"capacity": {"storage": "2Gi"}}}),
    patch(f"{NS}/persistentvolumeclaims/claim1", labelled("x")),
    ("a", f"POST {LEASES}?dryRun=All", named("c")),
    ("c", f"POST {LEASES}?dryRun=All", named("c")),
    patch(f"{LEASES}/a", labelled("x")),
    patch(f"{LEASES}/b", labelled("x")),
    ("a", "POST /apis/coordination.k8s.io/v1/namespaces/default/leases?dryRun=All", named("a")),
    ("a", f"POST {STORAGE}/csinodes?dryRun=All", named("c", spec={"drivers": []})),
    ("c", f"POST {STORAGE}/csinodes?dryRun=All", named("c", spec={"drivers": []})),
    ("a", f"DELETE {STORAGE}/csinodes/b?dryRun=All", None),
    ("a", f"DELETE {STORAGE}/csinodes/a?dryRun=All", None),
    ("a", f"POST {SLICES}?dryRun=All", slice_of("sc", nodeName="a")),
    ("a", f"POST {SLICES}?dryRun=All", slice_of("sc", nodeName="b")),
    ("a", f"POST {SLICES}?dryRun=All", slice_of("sc", allNodes=True)),
    ("a", f"DELETE {SLICES}/sa?dryRun=All", None),
    ("a", f"DELETE {SLICES}/sb?dryRun=All", None),
    ("a", f"DELETE {SLICES}?dryRun=All", None),
    ("a", f"DELETE {SLICES}?dryRun=All&fieldSelector=spec.nodeName%3Da", None),
    ("a", f"POST {NS}/serviceaccounts/acc/token", token("vault")),
    ("a", f"POST {NS}/serviceaccounts/acc/token", token()),
    ("a", f"POST {NS}/serviceaccounts/acc/token", token("driver")),
    ("a", f"POST {NS}/serviceaccounts/acc/token", token("else")),
    ("a", f"POST {NS}/serviceaccounts/acc/token", token("vault", "driver")),
    ("a", f"POST {NS}/serviceaccounts/acc/token", token("vault", name="pw", uid=f"{{uid:{NS}/pods/pw}}")),
    ("a", f"POST {NS}/serviceaccounts/acc/token", token("vault", name="none")),
    ("a", f"POST {NS}/serviceaccounts/acc/token", token("vault", uid="0")),
    ("a", f"POST {NS}/serviceaccounts/acc/token", token("vault", uid=None)),
    ("a", f"POST {NS}/serviceaccounts/acc/token", token("vault", kind="Secret", name="s1")),
    ("a", f"POST {NS}/serviceaccounts/acc/token", {"spec": {"audiences": []}}),
    ("a", f"POST {NS}/serviceaccounts/other/token", token()),
    ("a", "POST /apis/certificates.k8s.io/v1/certificatesigningrequests?dryRun=All", csr("kubernetes.io/kube-apiserver-client-kubelet", "system:node:a")),
    ("a", "POST /apis/certificates.k8s.io/v1/certificatesigningrequests?dryRun=All", csr("kubernetes.io/kube-apiserver-client-kubelet", "system:node:b")),
    ("a", "POST /apis/certificates.k8s.io/v1/certificatesigningrequests?dryRun=All", csr("example.com/other", "system:node:b")),
    # Nodes with roles of their own are restricted, too.
    ("admin", "POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {**named("nodes-are-admins"), "subjects": [{"kind": "Group", "name": "system:nodes"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}}),
    ("a", f"GET {NS}/secrets/s2", None),
    ("a", "DELETE /api/v1/nodes/b?dryRun=All", None),
    ("a", f"POST {NS}/pods?dryRun=All", pod("x", "a", serviceAccountName="acc")),
    ("a", f"POST {NS}/pods?dryRun=All", mirror(serviceAccountName="acc")),
    ("a", f"POST {NS}/pods?dryRun=All", mirror(imagePullSecrets=[{"name": "s"}])),
    ("a", f"PUT {NS}/pods/pa?dryRun=All", pod("pa", "a")),
    patch(f"{NS}/pods/pa", labelled("x")),
    ("a", f"DELETE {NS}/pods?dryRun=All", None),
    ("a", f"POST {NS}/pods/pw/binding?dryRun=All", {"apiVersion": "v1", "kind": "Binding", **named("pw", target={"kind": "Node", "name": "a"})}),
    patch(f"{NS}/persistentvolumeclaims/claim1", labelled("x")),
    ("a", f"DELETE {NS}/persistentvolumeclaims/claim2?dryRun=All", None),
    patch(f"{LEASES}/b", labelled("x")),
    ("a", "POST /apis/coordination.k8s.io/v1/namespaces/default/leases?dryRun=All", named("a")),
    patch(f"{STORAGE}/csinodes/b", labelled("x")),
    ("a", f"DELETE {SLICES}/sb?dryRun=All", None),
    ("a", f"DELETE {SLICES}?dryRun=All", None),
    ("a", f"POST {NS}/serviceaccounts/acc/token", token("else")),
    ("a", f"POST {NS}/serviceaccounts/other/token", token("vault")),
    ("a", f"POST {NS}/configmaps?dryRun=All", named("x")),
    ("", "GET /api/v1/nodes/a", None),
    ("", f"POST {NS}/pods?dryRun=All", mirror()),
    ("admin", "DELETE /apis/rbac.authorization.k8s.io/v1/clusterrolebindings/nodes-are-admins", None),
    ("", "GET /api/v1/nodes/a", None),
]

ASKED = [
    review("get", "secrets", name="s1"), review("get", "secrets", name="s2"), review("list", "secrets"), review("delete", "secrets", name="s1"),
    review("get", "secrets", name="s1", groups=["other"]), review("get", "secrets", name="s1", user="jane"),
    review("get", "secrets", name="s1", user="system:node:"), review("get", "secrets", subresource="x", name="s1"),
    review("list", "pods", namespace=""), review("list", "pods", namespace="", fields=equal("a")), review("list", "pods", namespace="", fields=equal("b")),
    review("list", "pods", namespace="", fields=equal("a", "b")), review("watch", "pods", namespace="", fields={"rawSelector": "spec.nodeName=a"}),
    review("watch", "pods", namespace="", fields={"rawSelector": "spec.nodeName!=b"}), review("update", "pods", name="pa"),
    review("create", "pods", subresource="eviction", name="pb"), review("get", "pods", subresource="log", name="pa"),
    review("update", "persistentvolumeclaims", subresource="status", name="claim1"), review("get", "persistentvolumeclaims", subresource="status", name="claim1"),
    review("update", "persistentvolumeclaims", subresource="resize", name="claim1"), review("get", "persistentvolumeclaims", subresource="x", name="claim1"),
    review("create", "serviceaccounts", subresource="token", name="acc"), review("create", "serviceaccounts", subresource="token"),
    review("create", "serviceaccounts", name="acc"), review("delete", "serviceaccounts", name="acc"),
    review("patch", "resourceslices", group="resource.k8s.io", name="sa", namespace=""), review("create", "resourceslices", group="resource.k8s.io", namespace=""),
    review("bind", "resourceslices", group="resource.k8s.io", namespace=""), review("get", "resourceslices", subresource="status", group="resource.k8s.io", namespace=""),
    review("create", "podcertificaterequests", group="certificates.k8s.io"), review("get", "csinodes", subresource="x", name="a", group="storage.k8s.io", namespace=""),
    review("create", "tokenreviews", group="authentication.k8s.io", namespace=""), review("get", "nodes", subresource="status", name="a", namespace=""),
    ("a", f"POST {REVIEWS}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": "default", "name": "s1"}}}),
    ("a", f"POST {REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}),
]


def answer(connection, base, user, request, body, uids):
    method, path = request.split()
    headers = {"Content-Type": "application/json" if method != "PATCH" else "application/strategic-merge-patch+json"}
    headers.update(base)
    if user != "admin":
        headers["Impersonate-User"], headers["Impersonate-Group"] = f"system:node:{user}", "system:nodes"
    text = json.dumps(body) if body is not None else None
    if text:
        text = re.sub(r"\{uid:([^}]*)\}", lambda found: uids(found[1]), text)
    connection.request(method, path, text, headers)
    response = connection.getresponse()
    return response.status, json.loads(response.read() or "null")


def main():
    config = json.loads(subprocess.run(["kubectl", "--kubeconfig", sys.argv[1], "config", "view", "--raw", "-o", "json"], check=True, capture_output=True).stdout)
    user, cluster = config["users"][0]["user"], config["clusters"][0]["cluster"]
    with tempfile.NamedTemporaryFile() as ca, tempfile.NamedTemporaryFile() as pair:
        ca.write(base64.b64decode(cluster["certificate-authority-data"]))
        pair.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
        ca.flush(), pair.flush()
        context = ssl.create_default_context(cafile=ca.name)
        context.load_cert_chain(pair.name)
    connection = http.client.HTTPSConnection(urllib.parse.urlparse(cluster["server"]).netloc, context=context)
    known = {}

    def uids(path):
        if path not in known:
            known[path] = answer(connection, {}, "admin", f"GET {path}", None, None)[1]["metadata"]["uid"]
        return known[path]

    for path, body in OBJECTS:
        code, made = answer(connection, {}, "admin", f"POST {path}", body, uids)
        assert code == 201, made
    time.sleep(3)  # The authorizer and the admission plugin follow by caches.
    recorded = []
    for user, request, body in READS + ASKED + WRITES:
        code, found = answer(connection, {}, user, request, body, uids)
        said = found.get("message") if code >= 400 else found.get("status") if REVIEWS in request else None
        if said and isinstance(said, str):
            for path, uid in known.items():
                said = said.replace(uid, f"{{uid:{path}}}")
        if "clusterrolebindings" in request:
            time.sleep(2)
        if "selfsubjectrulesreviews" in request:
            said = {key: said.get(key) for key in ["incomplete", "evaluationError"]}
        recorded.append([user, request, body, code, said])
    lines = lambda items: ",\n".join(json.dumps(item) for item in items)
    with open(FILE, "w") as file:
        file.write('{"objects": [\n' + lines(OBJECTS) + '\n], "requests": [\n' + lines(recorded) + "\n]}\n")


main()
