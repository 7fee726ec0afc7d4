#!/usr/bin/env python3
"""Records the audit events of kube-apiserver about some requests.

    audit-log.py KUBECONFIG LOG > audit-log.json

LOG is what kube-apiserver writes with --audit-log-path, and a policy with the one rule `level: RequestResponse`.
"""
import base64, json, os, ssl, sys, tempfile, time, urllib.error, urllib.request
import yaml

AGENT = "recorder/1"
NAMESPACE = "/api/v1/namespaces/audited"
MERGE, APPLY, PATCH = "application/merge-patch+json", "application/apply-patch+yaml", "application/json-patch+json"
POLICY = {
    "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "audited"},
    "spec": {
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "validations": [
            {"expression": "true"},
            {"expression": "!has(object.data)", "message": "no data, please"},
        ],
        "auditAnnotations": [
            {"key": "size", "valueExpression": "has(object.data) ? string(object.data.size()) : ''"}],
    },
}
BINDING = {
    "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "audited"},
    "spec": {"policyName": "audited", "validationActions": ["Audit", "Warn"]},
}
CONTAINERS = {"containers": [{"name": "c", "image": "i"}]}
DEPLOYMENT = {
    "metadata": {"name": "d"},
    "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": CONTAINERS}},
}


def request(method, path, body=None, type="application/json", headers=None):
    one = {"method": method, "path": path}
    if body is not None:
        one |= {"body": body if isinstance(body, str) else json.dumps(body), "type": type}
    return one | ({"headers": headers} if headers else {})


MAPS = NAMESPACE + "/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/audited/deployments"
POLICIES = "/apis/admissionregistration.k8s.io/v1/"
REQUESTS = [
    request("POST", "/api/v1/namespaces", {"metadata": {"name": "audited"}}),
    request("POST", MAPS, {"metadata": {"name": "a"}, "data": {"a": "b"}}),
    request("POST", MAPS, {"metadata": {"name": "a"}}),
    request("POST", MAPS, {"metadata": {"generateName": "g-"}}),
    request("GET", MAPS + "/a"),
    request("GET", MAPS + "/none"),
    request("GET", MAPS + "?limit=1&fieldSelector=metadata.name%3Da"),
    request("GET", "/api/v1/configmaps?labelSelector=x%3Dy"),
    request("PUT", MAPS + "/a", {"metadata": {"name": "a"}, "data": {"a": "c"}}),
    request("PATCH", MAPS + "/a", {"data": {"x": "y"}}, MERGE),
    request("PATCH", MAPS + "/a?fieldManager=m", json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "data": {"q": "r"}}), APPLY),
    request("PATCH", MAPS + "/a", [{"op": "add", "path": "/data/z", "value": "1"}], PATCH),
    request("POST", MAPS, "{bad"),
    request("POST", NAMESPACE + "/pods", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}),
    request("POST", NAMESPACE + "/pods", {"metadata": {"name": "p"}, "spec": CONTAINERS}),
    request("PATCH", NAMESPACE, {"metadata": {"labels": {
        "pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/audit": "restricted"}}}, MERGE),
    request("POST", NAMESPACE + "/pods", {"metadata": {"name": "q"}, "spec": CONTAINERS}),
    request("POST", NAMESPACE + "/pods", {"metadata": {"name": "r"}, "spec": CONTAINERS | {"hostNetwork": True}}),
    request("DELETE", MAPS + "/a", {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}),
    request("DELETE", MAPS + "/a"),
    request("DELETE", MAPS + "?labelSelector=none"),
    request("GET", "/version"),
    request("GET", "/apis"),
    request("GET", "/nothing/here"),
    request("GET", "/apis/none.example.com/v1/things/x"),
    request("GET", MAPS + "?watch=1&timeoutSeconds=1"),
    request("POST", NAMESPACE + "/serviceaccounts", {"metadata": {"name": "robot"}}),
    request("POST", NAMESPACE + "/serviceaccounts/robot/token", {"spec": {"expirationSeconds": 600}}),
    request("GET", NAMESPACE + "/secrets", headers={"Impersonate-User": "jane", "Impersonate-Group": "dev"}),
    request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": {"resourceAttributes": {"verb": "get"}}},
            headers={"Impersonate-User": "jane"}),
    request("POST", NAMESPACE + "/deployments", {}),
    request("POST", DEPLOYMENTS, DEPLOYMENT),
    request("PUT", DEPLOYMENTS + "/d/scale", {"metadata": {"name": "d", "namespace": "audited"}, "spec": {"replicas": 3}}),
    request("PATCH", DEPLOYMENTS + "/d/status", {"status": {"observedGeneration": 1}}, MERGE),
    request("POST", POLICIES + "validatingadmissionpolicies", POLICY),
    request("POST", POLICIES + "validatingadmissionpolicybindings", BINDING),
    request("POST", MAPS, {"metadata": {"name": "b"}, "data": {"a": "b"}}),
    request("DELETE", POLICIES + "validatingadmissionpolicybindings/audited"),
    request("DELETE", POLICIES + "validatingadmissionpolicies/audited"),
    request("DELETE", "/api/v1/namespaces/audited"),
]


def send(server, context, one):
    headers = {"User-Agent": AGENT, "Accept": "application/json", "Content-Type": one.get("type", "application/json")}
    headers |= one.get("headers", {})
    data = one["body"].encode() if "body" in one else None
    sent = urllib.request.Request(server + one["path"], data=data, method=one["method"], headers=headers)
    try:
        urllib.request.urlopen(sent, context=context, timeout=20).read()
    except urllib.error.HTTPError as error:
        error.read()


def shown(event):
    """Returns what is the same each time. That objects of responses are recorded is compared, but not their content."""
    fields = ["stage", "requestURI", "verb", "impersonatedUser", "objectRef", "responseStatus", "requestObject", "annotations"]
    out = {field: event[field] for field in fields if field in event}
    if "responseObject" in event:
        out["responseObject"] = event["responseObject"]["kind"]
    out.get("annotations", {}).pop("authentication.kubernetes.io/issued-credential-id", None)
    out.get("objectRef", {}).pop("uid", None)
    out.get("objectRef", {}).pop("resourceVersion", None)
    (out.get("responseStatus", {}).get("details") or {}).pop("uid", None)
    return out


def main():
    kubeconfig, log = sys.argv[1:]
    config = yaml.safe_load(open(kubeconfig))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    with tempfile.TemporaryDirectory() as folder:
        def file(source, key):
            path = os.path.join(folder, key)
            open(path, "wb").write(base64.b64decode(source[key + "-data"]))
            return path
        context = ssl.create_default_context(cafile=file(cluster, "certificate-authority"))
        context.load_cert_chain(file(user, "client-certificate"), file(user, "client-key"))
        recorded = []
        for one in REQUESTS:
            with open(log) as lines:
                lines.seek(0, os.SEEK_END)
                send(cluster["server"], context, one)
                time.sleep(1.5)
                events = [json.loads(line) for line in lines]
            events = [shown(event) for event in events if event.get("userAgent") == AGENT]
            recorded.append({"request": one, "events": events})
    json.dump(recorded, sys.stdout, indent=1)
    print()


main()
