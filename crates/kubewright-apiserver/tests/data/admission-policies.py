#!/usr/bin/env python3
"""Records how a real kube-apiserver evaluates admission policies: admission-policies.py URL CERT KEY CA OUTPUT.

Each case creates objects, policies and bindings, waits until a policy created after them is in effect, and sends
requests. `tests/it/policies.rs` sends the same to the embedded server and compares the answers.
"""
import http.client, json, re, ssl, sys, time, urllib.parse

NS = "policies"
RULE = {"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
cases = []


def rule(**fields):
    return {**RULE, **fields}


def meta(kind, api, name, **fields):
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **fields}}


def cm(name="it", data=None, **fields):
    return {**meta("ConfigMap", "v1", name, **fields), "data": data or {"a": "1"}}


def deployment(name="it", replicas=2, **fields):
    pod = {"metadata": {"labels": {"app": "it"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "it"}}, "template": pod}
    return {**meta("Deployment", "apps/v1", name, **fields), "spec": spec}


def only_here(constraints):
    """Limits rules to the namespace of the recording, so that others can use the server."""
    if "namespaceSelector" in constraints or any("namespaces" in one["resources"] for one in constraints["resourceRules"]):
        return constraints
    return {**constraints, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NS}}}


def v(expression, **fields):
    return {"expression": expression, **fields}


def vap(*validations, name="p", constraints=None, **spec):
    constraints = only_here(constraints or {"resourceRules": [RULE]})
    made = meta("ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1", name)
    return {**made, "spec": {"matchConstraints": constraints, "validations": list(validations), **spec}}


def vapb(policy="p", name="b", actions=("Deny",), **spec):
    made = meta("ValidatingAdmissionPolicyBinding", "admissionregistration.k8s.io/v1", name)
    return {**made, "spec": {"policyName": policy, "validationActions": list(actions), **spec}}


def apply(expression):
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patch(expression):
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def mapo(*mutations, name="m", constraints=None, reinvocation="Never", **spec):
    constraints = only_here(constraints or {"resourceRules": [RULE]})
    made = meta("MutatingAdmissionPolicy", "admissionregistration.k8s.io/v1", name)
    spec = {"matchConstraints": constraints, "mutations": list(mutations), "reinvocationPolicy": reinvocation, **spec}
    return {**made, "spec": spec}


def mapb(policy="m", name="mb", **spec):
    made = meta("MutatingAdmissionPolicyBinding", "admissionregistration.k8s.io/v1", name)
    return {**made, "spec": {"policyName": policy, **spec}}


def path(of):
    api = of["apiVersion"]
    root = "/api/v1" if api == "v1" else f"/apis/{api}"
    cluster = ("Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding")
    plural = of["kind"].lower() + ("es" if of["kind"].endswith("s") else "s")
    if plural.endswith("ys"):
        plural = plural[:-2] + "ies"
    if of["kind"] in cluster or "admissionregistration" in api:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{of['metadata'].get('namespace', NS)}/{plural}"


def create(of, **more):
    return {"method": "POST", "path": path(of) + "?dryRun=All", "body": of, **more}


def update(of, **more):
    return {"method": "PUT", "path": f"{path(of)}/{of['metadata']['name']}?dryRun=All", "body": of, **more}


def merge(of, body, subresource="", **more):
    at = f"{path(of)}/{of['metadata']['name']}{subresource}?dryRun=All"
    return {"method": "PATCH", "path": at, "body": body, "type": "application/merge-patch+json", **more}


def delete(of, **more):
    return {"method": "DELETE", "path": f"{path(of)}/{of['metadata']['name']}?dryRun=All", **more}


def case(name, policies, requests, setup=()):
    cases.append({"case": name, "setup": list(setup), "policies": list(policies), "requests": list(requests)})


def simple(name, *validations, request=None, setup=(), binding=None, **spec):
    case(name, [vap(*validations, **spec), binding or vapb()], [request or create(cm())], setup)


WIDGETS = {
    **meta("CustomResourceDefinition", "apiextensions.k8s.io/v1", "widgets.policies.example.com"),
    "spec": {"group": "policies.example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
             "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                 "type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"spec": {
                     "type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {
                         "size": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}},
                         "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}}}}}}]}}
widget = lambda name="w", **spec: {**meta("Widget", "policies.example.com/v1", name), "spec": spec}

# validations
simple("allowed", v("object.data.a == '1'"))
simple("denied without message", v("object.data.a == '2'"))
simple("denied with message", v("object.data.a == '2'", message="  a must be two "))
simple("denied with message expression", v("object.data.a == '2'", message="m", messageExpression="'a is ' + object.data.a"))
simple("message expression fails", v("object.data.a == '2'", message="m", messageExpression="string(object.data.b)"))
simple("message expression is blank", v("object.data.a == '2'", messageExpression="' '"))
simple("message expression with a line break", v("false", message="m", messageExpression="'a\\nb'"))
for reason in ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"):
    simple(f"reason {reason}", v("false", reason=reason))
simple("two validations", v("object.data.a == '2'", message="first"), v("object.data.a == '3'", message="second"))
simple("first allows second denies", v("true"), v("object.data.a == '3'", message="second"))
simple("missing field", v("object.data.b == '2'"))
simple("missing field ignored", v("object.data.b == '2'"), failurePolicy="Ignore")
simple("violation with ignored failures", v("object.data.a == '2'"), failurePolicy="Ignore")
simple("error absorbed", v("object.data.b == '2' || object.data.a == '1'"))
simple("has", v("!has(object.data.b) && has(object.data)"))
simple("generated name", v("false"), request=create({**cm(), "metadata": {"generateName": "gen-"}}))
simple("division by zero", v("1 / int(object.data.a) == 1 && 1 / (int(object.data.a) - 1) == 1"))
simple("index out of bounds", v("[1, 2][int(object.data.a) + 5] == 1"))
simple("no such overload", v("object.data + 1 == 2"))
simple("old object on create", v("oldObject == null"))
simple("request", v("request.operation == 'CREATE' && request.name == 'it' && request.namespace == 'policies' && request.dryRun"))
simple("request kinds", v("request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps' && request.requestKind.version == 'v1' && request.kind.group == ''"))
simple("request user", v("request.userInfo.username == 'jane' && 'dev' in request.userInfo.groups", message="not jane"),
       request=create(cm(), user="jane", groups=["system:masters", "dev"]))
simple("request subresource absent", v("!has(request.subResource)", messageExpression="'x'"))
simple("namespace object", v("namespaceObject.metadata.name == 'policies' && namespaceObject.metadata.labels.env == 'test'"))
simple("namespace object status", v("namespaceObject.status.phase == 'Active'"))
simple("namespace object of cluster kind", v("namespaceObject == null"), request=create(meta("Namespace", "v1", "other")),
       constraints={"resourceRules": [rule(resources=["namespaces"], resourceNames=["other"])]})
simple("message of a namespace", v("false", message="no namespaces"), request=create(meta("Namespace", "v1", "other")),
       constraints={"resourceRules": [rule(resources=["namespaces"], resourceNames=["other"])]})
simple("library", v("object.data.a.matches('^[0-9]$') && quantity('1Gi').isGreaterThan(quantity('1Mi'))"))
simple("variables", v("variables.twice == 2", message="m"), variables=[
    {"name": "a", "expression": "int(object.data.a)"}, {"name": "twice", "expression": "variables.a * 2"}])
simple("variable denies", v("variables.twice == 3", messageExpression="'twice is ' + string(variables.twice)"), variables=[
    {"name": "a", "expression": "int(object.data.a)"}, {"name": "twice", "expression": "variables.a * 2"}])
simple("variable fails", v("variables.b == '1'"), variables=[{"name": "b", "expression": "object.data.b"}])
simple("variable fails in variable", v("variables.c == '1'"), variables=[
    {"name": "b", "expression": "object.data.b"}, {"name": "c", "expression": "variables.b"}])
simple("variable not used", v("true"), variables=[{"name": "b", "expression": "object.data.b"}])
simple("variable absorbed", v("variables.b == '1' || true"), variables=[{"name": "b", "expression": "object.data.b"}])
simple("match condition false", v("false"), matchConditions=[{"name": "c", "expression": "object.data.a == '2'"}])
simple("match condition true", v("false"), matchConditions=[{"name": "c", "expression": "object.data.a == '1'"}])
simple("match condition fails", v("true"), matchConditions=[{"name": "c", "expression": "object.data.b == '1'"}])
simple("match conditions fail", v("true"), matchConditions=[{"name": "c", "expression": "object.data.b == '1'"}, {"name": "d", "expression": "object.data.c == '1'"}])
simple("match condition fails and other false", v("false"), matchConditions=[{"name": "c", "expression": "object.data.b == '1'"}, {"name": "d", "expression": "false"}])
simple("match condition fails ignored", v("false"), failurePolicy="Ignore", matchConditions=[{"name": "c", "expression": "object.data.b == '1'"}])
simple("match condition with variable", v("false"), variables=[{"name": "x", "expression": "object.data.a"}], matchConditions=[{"name": "c", "expression": "variables.x == '2'"}])
simple("audit annotation", v("true"), auditAnnotations=[{"key": "k", "valueExpression": "'v'"}])
simple("audit annotation fails", v("true"), auditAnnotations=[{"key": "k", "valueExpression": "string(object.data.b)"}])
simple("audit annotation fails ignored", v("true"), failurePolicy="Ignore", auditAnnotations=[{"key": "k", "valueExpression": "string(object.data.b)"}])
case("warn", [vap(v("false", message="careful")), vapb(actions=["Warn"])], [create(cm())])
case("warn twice", [vap(v("false", message="careful"), v("false", message="very")), vapb(actions=["Warn", "Audit"])], [create(cm())])
case("audit", [vap(v("false", message="careful")), vapb(actions=["Audit"])], [create(cm())])
case("deny and audit", [vap(v("false", message="careful")), vapb(actions=["Deny", "Audit"])], [create(cm())])
case("warn by one and deny by other", [vap(v("false", message="careful")), vapb(name="b1", actions=["Warn"]), vapb(name="b2")], [create(cm())])
case("two policies", [vap(v("true"), name="p1"), vap(v("false", message="two"), name="p2"), vapb("p1", "b1"), vapb("p2", "b2")], [create(cm())])
case("no binding", [vap(v("false"))], [create(cm())])
case("binding of another policy", [vap(v("false")), vapb(policy="q")], [create(cm())])

# operations
for operations in (["CREATE"], ["UPDATE"], ["DELETE"], ["*"]):
    case(f"operations {operations}", [vap(v("false", message="no"), constraints={"resourceRules": [rule(operations=operations)]}), vapb()],
         [create(cm("new")), update(cm(data={"a": "2"})), merge(cm(), {"data": {"b": "1"}}), delete(cm())], setup=[cm()])
simple("update compares", v("object.data.a == oldObject.data.a", messageExpression="oldObject.data.a + ' to ' + object.data.a"),
       request=update(cm(data={"a": "2"})), setup=[cm()])
case("delete sees the old object", [vap(v("object == null && oldObject.data.a == '2'", messageExpression="oldObject.metadata.name + ' stays'"),
     constraints={"resourceRules": [rule(operations=["DELETE"])]}), vapb()], [delete(cm())], setup=[cm()])
ingress = {**meta("Ingress", "networking.k8s.io/v1", "it"), "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}
case("status subresource", [vap(v("request.subResource != 'status'", message="no status"), constraints={"resourceRules": [
     rule(apiGroups=["networking.k8s.io"], resources=["ingresses/status"])]}), vapb()],
     [merge(ingress, {"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}, "/status"), merge(ingress, {"metadata": {"labels": {"a": "b"}}})], setup=[ingress])
case("scale subresource", [vap(v("object.kind == 'Scale' && object.spec.replicas < 5", messageExpression="string(object.spec.replicas)"),
     constraints={"resourceRules": [rule(apiGroups=["apps"], resources=["deployments/scale"])]}), vapb()],
     [merge(deployment(), {"spec": {"replicas": 4}}, "/scale"), merge(deployment(), {"spec": {"replicas": 6}}, "/scale")], setup=[deployment()])
case("typed object", [vap(v("object.spec.replicas <= 3 && object.spec.template.spec.containers.all(c, c.image.startsWith('reg/'))", message="images"),
     constraints={"resourceRules": [rule(apiGroups=["apps"], resources=["deployments"])]}), vapb()], [create(deployment())])
case("defaults are visible", [vap(v("object.spec.strategy.type == 'RollingUpdate' && object.spec.revisionHistoryLimit == 10"),
     constraints={"resourceRules": [rule(apiGroups=["apps"], resources=["deployments"])]}), vapb()], [create(deployment())])
case("policies are not for policies", [vap(v("false"), constraints={"resourceRules": [rule(apiGroups=["admissionregistration.k8s.io"], resources=["*"])]}), vapb()],
     [create(vap(v("true"), name="p2")), create(vapb(name="b2"))])

# matching
def matching(name, constraints, *requests, **more):
    case(name, [vap(v("false", message="matched"), constraints=constraints), vapb()], requests or [create(cm())], **more)
matching("resource names", {"resourceRules": [rule(resourceNames=["it"])]}, create(cm()), create(cm("other")), create({**cm(), "metadata": {"generateName": "it"}}))
matching("excluded", {"resourceRules": [RULE], "excludeResourceRules": [rule(resourceNames=["it"])]}, create(cm()), create(cm("other")))
matching("excluded operation", {"resourceRules": [RULE], "excludeResourceRules": [rule(operations=["CREATE"])]}, create(cm()))
matching("namespace selector", {"resourceRules": [RULE], "namespaceSelector": {"matchLabels": {"env": "test"}}})
matching("namespace selector of others", {"resourceRules": [RULE], "namespaceSelector": {"matchLabels": {"env": "prod"}}})
matching("object selector", {"resourceRules": [RULE], "objectSelector": {"matchLabels": {"x": "y"}}}, create(cm()), create(cm(labels={"x": "y"})))
matching("object selector and old labels", {"resourceRules": [RULE], "objectSelector": {"matchLabels": {"x": "y"}}}, update(cm()), setup=[cm(labels={"x": "y"})])
matching("scope", {"resourceRules": [rule(scope="Cluster")]})
matching("another group", {"resourceRules": [rule(apiGroups=["apps"])]})
autoscaler = {**meta("HorizontalPodAutoscaler", "autoscaling/v2", "it"), "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "it"},
     "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}}
v1hpa = {"resourceRules": [rule(apiGroups=["autoscaling"], resources=["horizontalpodautoscalers"])]}
case("equivalent", [vap(v("request.kind.version == 'v1' && request.requestKind.version == 'v2' && object.spec.targetCPUUtilizationPercentage == 50 && object.apiVersion == 'autoscaling/v1'"), constraints=v1hpa), vapb()], [create(autoscaler)])
case("equivalent denies", [vap(v("object.spec.targetCPUUtilizationPercentage == 60", message="sixty"), constraints=v1hpa), vapb()], [create(autoscaler)])
case("exact", [vap(v("false"), constraints={**v1hpa, "matchPolicy": "Exact"}), vapb()], [create(autoscaler)])
def bound(name, resources, *requests, **more):
    case(name, [vap(v("false", message="matched")), vapb(matchResources=resources)], requests or [create(cm())], **more)
bound("binding namespace selector", {"namespaceSelector": {"matchLabels": {"env": "prod"}}})
bound("binding object selector", {"objectSelector": {"matchLabels": {"x": "y"}}}, create(cm()), create(cm(labels={"x": "y"})))
bound("binding rules", {"resourceRules": [rule(resourceNames=["it"])]}, create(cm()), create(cm("other")))
bound("binding excludes", {"excludeResourceRules": [rule(resourceNames=["it"])]}, create(cm()), create(cm("other")))

# parameters
# A built-in kind that only policies read isn't used: kube-apiserver never starts its informer again once the last policy of
# the kind is gone.
KIND = {"apiVersion": "policies.example.com/v1", "kind": "Widget"}
SECRETS = {"resourceRules": [rule(resources=["secrets"])]}
secret = {**meta("Secret", "v1", "it"), "stringData": {"a": "1"}}
def params(name, validation, reference, *requests, setup=(), kind=KIND, constraints=SECRETS, **spec):
    bind = vapb(paramRef=reference) if reference else vapb()
    case(name, [vap(validation, paramKind=kind, constraints=constraints, **spec), bind], requests or [create(secret)], [WIDGETS, *setup])
check = v("params.data.max == '5'", messageExpression="params.metadata.name + ': ' + params.data.max")
param = lambda name, value, **more: {**meta("Widget", "policies.example.com/v1", name, **more), "data": {"max": value}}
ref = lambda action="Deny", **fields: {"parameterNotFoundAction": action, **fields}
params("parameter", check, ref(name="p", namespace=NS), setup=[param("p", "5")])
params("parameter denies", check, ref(name="p", namespace=NS), setup=[param("p", "6")])
params("parameter of the namespace", check, ref(name="p"), setup=[param("p", "6")])
params("parameter missing", check, ref(name="absent"))
params("parameter missing allowed", check, ref("Allow", name="absent"))
params("parameter missing ignored", check, ref(name="absent"), failurePolicy="Ignore")
params("parameter kind and apiVersion", v("params.kind == 'Widget' && params.apiVersion == 'policies.example.com/v1'"), ref(name="p"), setup=[param("p", "6")])
params("no reference", v("params == null", message="not null"), None)
params("selected parameter denies", check, ref(selector={"matchLabels": {"x": "y"}}), setup=[param("p1", "5", labels={"x": "y"}), param("p2", "6", labels={"x": "y"}), param("p3", "7")])
params("selected parameters missing", check, ref(selector={"matchLabels": {"x": "z"}}), setup=[param("p1", "5", labels={"x": "y"})])
params("unknown parameter kind", v("true"), ref(name="p"), kind={"apiVersion": "none.example.com/v1", "kind": "Nothing"})
params("unknown core kind", v("true"), ref(name="p"), kind={"apiVersion": "v1", "kind": "Nothing"})
params("unknown parameter kind ignored", v("false"), ref(name="p"), kind={"apiVersion": "v1", "kind": "Nothing"}, failurePolicy="Ignore")
params("custom parameter", v("params.spec.size > 2", messageExpression="'size ' + string(params.spec.size)"), ref(name="w", namespace=NS),
       kind={"apiVersion": "policies.example.com/v1", "kind": "Widget"}, setup=[widget(size=2)])
params("namespace of a cluster-scoped kind", v("true"), ref(name=NS, namespace=NS), kind={"apiVersion": "v1", "kind": "Namespace"})
params("cluster-scoped parameter", v("params.metadata.labels.env == 'prod'", messageExpression="string(params.metadata.name)"), ref(name=NS), kind={"apiVersion": "v1", "kind": "Namespace"})
params("namespaced parameter for a namespace", v("true"), ref(name="p"), create(meta("Namespace", "v1", "other")),
       constraints={"resourceRules": [rule(resources=["namespaces"], resourceNames=["other"])]})
params("match condition with parameter", v("false"), ref(name="p"), setup=[param("p", "5")], matchConditions=[{"name": "c", "expression": "params.data.max == '6'"}])
params("variable with parameter", v("variables.max == 6", messageExpression="string(variables.max)"), ref(name="p"), setup=[param("p", "5")],
       variables=[{"name": "max", "expression": "int(params.data.max)"}])

# custom objects
case("custom object", [vap(v("object.spec.size < 3 && object.spec.tags.all(t, t != 'bad')", message="too large"),
     constraints={"resourceRules": [rule(apiGroups=["policies.example.com"], resources=["widgets"])]}), vapb()],
     [create(widget(size=2, tags=[])), create(widget(size=3)), create(widget(size=1, tags=["bad"]))], setup=[WIDGETS])

# authorizer
ROLE = [{**meta("Role", "rbac.authorization.k8s.io/v1", "writer"), "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "approve"]}]},
        {**meta("RoleBinding", "rbac.authorization.k8s.io/v1", "writer"), "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
         "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}, {"kind": "ServiceAccount", "name": "robot", "namespace": NS}]}]
def authorizer(name, expression, **more):
    case(f"authorizer {name}", [vap(v(expression, message="not authorized"), **more), vapb()], [create(cm(), user="jane")], setup=ROLE)
authorizer("request resource", "authorizer.requestResource.check('approve').allowed()")
authorizer("request resource denied", "authorizer.requestResource.check('delete').allowed()")
authorizer("group", "authorizer.group('').resource('configmaps').namespace('policies').check('approve').allowed()")
authorizer("other namespace", "authorizer.group('').resource('configmaps').namespace('default').check('approve').allowed()")
authorizer("reason", "authorizer.requestResource.check('approve').reason() == 'RBAC: allowed by RoleBinding \"writer/policies\" of Role \"writer\" to User \"jane\"'")
authorizer("errored", "authorizer.requestResource.check('x').errored() || authorizer.requestResource.check('x').error() != ''")
authorizer("path", "authorizer.path('/version').check('get').allowed()")
authorizer("path denied", "authorizer.path('/secret').check('get').allowed()")
authorizer("empty path", "authorizer.path(' ').check('get').allowed()")
authorizer("service account", "authorizer.serviceAccount('policies', 'robot').group('').resource('configmaps').namespace('policies').check('create').allowed()")
authorizer("other service account", "authorizer.serviceAccount('policies', 'other').group('').resource('configmaps').namespace('policies').check('create').allowed()")
authorizer("malformed service account", "authorizer.serviceAccount('policies', 'X').group('').resource('configmaps').check('create').allowed()")
authorizer("subresource and name", "authorizer.group('').resource('configmaps').subresource('x').namespace('policies').name('it').check('create').allowed()")
authorizer("match condition", "false", matchConditions=[{"name": "c", "expression": "!authorizer.requestResource.check('approve').allowed()"}])
authorizer("three checks", "authorizer.requestResource.check('a').allowed() || authorizer.requestResource.check('b').allowed() || authorizer.requestResource.check('c').allowed()")

# mutations
def mutate(name, *mutations, request=None, setup=(), binding=None, **spec):
    case(f"mutation: {name}", [mapo(*mutations, **spec), binding or mapb()], [request or create(cm())], setup)
mutate("apply label", apply("Object{metadata: Object.metadata{labels: Object.metadata.labels{added: 'yes'}}}"))
mutate("apply map", apply("Object{metadata: Object.metadata{labels: {'a/b': 'yes'}}, data: {'b': object.data.a + '2'}}"))
mutate("patch label", patch("[JSONPatch{op: 'add', path: '/metadata/labels', value: {'x': 'y'}}]"))
mutate("patch with escaped key", patch("[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('a.b'), value: 'c'}, JSONPatch{op: 'remove', path: '/data/a'}]"))
mutate("patch moves and copies", patch("[JSONPatch{op: 'copy', from: '/data/a', path: '/data/b'}, JSONPatch{op: 'move', from: '/data/a', path: '/data/c'}]"))
mutate("patch test fails", patch("[JSONPatch{op: 'test', path: '/data/a', value: '2'}, JSONPatch{op: 'add', path: '/data/b', value: 'c'}]"))
mutate("patch test holds", patch("[JSONPatch{op: 'test', path: '/data/a', value: '1'}, JSONPatch{op: 'add', path: '/data/b', value: 'c'}]"))
mutate("patch of a missing path", patch("[JSONPatch{op: 'remove', path: '/data/none'}]"))
mutate("patch with object", patch("[JSONPatch{op: 'add', path: '/metadata/labels', value: Object.metadata.labels{x: 'y'}}]"))
mutate("conditional", patch("object.data.a == '1' ? [JSONPatch{op: 'add', path: '/data/b', value: 'c'}] : []"))
mutate("two mutations", patch("[JSONPatch{op: 'add', path: '/data/b', value: 'c'}]"), patch("[JSONPatch{op: 'add', path: '/data/d', value: object.data.b}]"))
mutate("fails", apply("Object{data: {'b': object.data.c}}"))
mutate("fails ignored", apply("Object{data: {'b': object.data.c}}"), failurePolicy="Ignore")
mutate("wrong type name", apply("Object{metadata: Object.other{labels: {'a': 'b'}}}"))
mutate("undeclared field", apply("Object{other: {'a': 'b'}}"))
mutate("match condition", apply("Object{data: {'b': 'c'}}"), matchConditions=[{"name": "c", "expression": "object.data.a == '2'"}])
mutate("match condition fails", apply("Object{data: {'b': 'c'}}"), matchConditions=[{"name": "c", "expression": "object.data.b == '2'"}])
mutate("variables", apply("Object{data: {'b': variables.x}}"), variables=[{"name": "x", "expression": "object.data.a + '!'"}])
mutate("parameter", apply("Object{data: {'b': params.data.max}}"), paramKind=KIND, binding=mapb(paramRef=ref(name="p")), setup=[WIDGETS, param("p", "5")])
mutate("several parameters", patch("[JSONPatch{op: 'add', path: '/data/' + params.metadata.name, value: params.data.max}]"), paramKind=KIND,
       binding=mapb(paramRef=ref(selector={"matchLabels": {"x": "y"}})), setup=[WIDGETS, param("p1", "5", labels={"x": "y"}), param("p2", "6", labels={"x": "y"})])
mutate("parameter missing", apply("Object{data: {'b': params.data.max}}"), paramKind=KIND, binding=mapb(paramRef=ref(name="p")), setup=[WIDGETS])
mutate("unknown parameter kind", apply("Object{}"), paramKind={"apiVersion": "v1", "kind": "Nothing"}, binding=mapb(paramRef=ref(name="p")))
mutate("update", apply("Object{data: {'b': oldObject.data.a}}"), request=update(cm(data={"a": "2"})), setup=[cm()])
mutate("namespace object", apply("Object{data: {'b': namespaceObject.metadata.labels.env}}"))
mutate("authorizer", apply("Object{data: {'b': string(authorizer.requestResource.check('get').allowed())}}"))
DEPLOYMENTS = {"resourceRules": [rule(apiGroups=["apps"], resources=["deployments"])]}
CONTAINERS = "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{%s}]}}}}"
mutate("merges containers", apply(CONTAINERS % "name: 'c', imagePullPolicy: 'Never'"), request=create(deployment()), constraints=DEPLOYMENTS)
mutate("adds a container", apply(CONTAINERS % "name: 'sidecar', image: 'proxy'"), request=create(deployment()), constraints=DEPLOYMENTS)
mutate("container without key", apply(CONTAINERS % "image: 'proxy'"), request=create(deployment()), constraints=DEPLOYMENTS)
mutate("atomic list", apply(CONTAINERS % "name: 'c', args: ['a']"), request=create(deployment()), constraints=DEPLOYMENTS)
mutate("atomic map", apply("Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}"), request=create(deployment()), constraints=DEPLOYMENTS)
mutate("wrong type of a field", apply("Object{spec: Object.spec{replicas: 'x'}}"), request=create(deployment()), constraints=DEPLOYMENTS)
mutate("invalid result", apply("Object{spec: Object.spec{replicas: -1}}"), request=create(deployment()), constraints=DEPLOYMENTS)
mutate("custom object", apply("Object{spec: Object.spec{size: object.spec.size + 1, set: ['b'], extra: Object.spec.extra{x: 1}}}"), request=create(widget(size=1, set=["a"])),
       constraints={"resourceRules": [rule(apiGroups=["policies.example.com"], resources=["widgets"])]}, setup=[WIDGETS])
mutate("atomic list of a custom object", apply("Object{spec: Object.spec{tags: ['a']}}"), request=create(widget(size=1)),
       constraints={"resourceRules": [rule(apiGroups=["policies.example.com"], resources=["widgets"])]}, setup=[WIDGETS])
case("mutation: reinvoked", [mapo(patch("has(object.data.b) ? [JSONPatch{op: 'add', path: '/data/seen', value: 'yes'}] : []"), name="m1", reinvocation="IfNeeded"), mapb("m1", "mb1"),
     mapo(patch("[JSONPatch{op: 'add', path: '/data/b', value: 'c'}]"), name="m2"), mapb("m2", "mb2")], [create(cm())])
case("mutation: then validation", [mapo(apply("Object{data: {'b': 'c'}}")), mapb(), vap(v("!has(object.data.b)", message="has b")), vapb()], [create(cm())])

# what mutations may answer
def mutates(name, mutation, request=None, setup=(), binding=None, **fields):
    case(f"mutation: {name}", [mapo(mutation, **fields), binding or mapb()], [request or create(cm())], setup)


for name, operation in [
    ("an unknown field in a patch", "op: 'add', path: '/foo', value: 'b'"), ("a wrong type in a patch", "op: 'add', path: '/data/c', value: 5"),
    ("a patch without a value", "op: 'add', path: '/data/b'"), ("a copy of a missing field", "op: 'copy', from: '/data/z', path: '/data/c'"),
    ("a move of a missing field", "op: 'move', from: '/data/z', path: '/data/c'"), ("a removal of a missing field", "op: 'remove', path: '/data/z'"),
    ("a patch without a slash", "op: 'add', path: 'z', value: 'x'"), ("a removed kind", "op: 'remove', path: '/kind'"),
    ("an unknown kind", "op: 'replace', path: '/kind', value: 'Foo'"), ("a kind that is no text", "op: 'replace', path: '/kind', value: 5"),
    ("another version", "op: 'replace', path: '/apiVersion', value: 'v2'"), ("a list for the object", "op: 'replace', path: '', value: [1]"),
    ("a timestamp", "op: 'add', path: '/data/c', value: timestamp('2020-01-01T00:00:00.5+05:00')"), ("a duration", "op: 'add', path: '/data/c', value: duration('1h5m0.5s')"),
    ("bytes", "op: 'add', path: '/data/c', value: b'abc'"), ("a large integer", "op: 'add', path: '/data/c', value: 9007199254740993"),
    ("an optional", "op: 'add', path: '/data/c', value: optional.of('x')"), ("an empty optional", "op: 'add', path: '/data/c', value: optional.none()"),
    ("a quantity", "op: 'add', path: '/data/c', value: quantity('1')"), ("a type", "op: 'add', path: '/data/c', value: string"),
    ("keys that are numbers", "op: 'add', path: '/data/c', value: {1: 'x'}"), ("not a number", "op: 'add', path: '/data/c', value: 0.0 / 0.0"),
]:
    mutates(name, patch(f"[JSONPatch{{{operation}}}]"))
mutates("an unknown field with ignored failures", patch("[JSONPatch{op: 'add', path: '/foo', value: 'b'}]"), failurePolicy="Ignore")
for name, fields in [("a null for a map", "data: null"), ("a null for a text", "data: {'a': null}"), ("a null for a boolean", "immutable: null"),
                     ("a null for a number", "metadata: Object.metadata{generation: null}"), ("text that isn't base64", "binaryData: {'x': '???'}"),
                     ("a fraction for an integer", "metadata: Object.metadata{generation: 1.5}"), ("a malformed time", "metadata: Object.metadata{creationTimestamp: 'foo'}")]:
    mutates(name, apply(f"Object{{{fields}}}"))
scale_rule = {"resourceRules": [{**RULE, "apiGroups": ["apps"], "resources": ["deployments/scale"]}]}
mutates("of a scale", apply("Object{spec: Object.spec{replicas: 7}}"), merge(deployment(), {"spec": {"replicas": 3}}, "/scale"), [deployment()], constraints=scale_rule)
autoscaler = {**meta("HorizontalPodAutoscaler", "autoscaling/v2", "it"), "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "X", "name": "y"}}}
mutates("of another version", apply("Object{metadata: Object.metadata{labels: {'a': 'b'}}}"), create(autoscaler),
        constraints={"resourceRules": [{**RULE, "apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"]}]})
for name, mutation in [("refused: an empty list", patch("[]")), ("refused: a field of a wrong type", patch("[JSONPatch{op: 1}]")), ("refused: a part of an object", apply("Object.spec{}")),
                       ("refused: an unknown message", apply("Foo{}")), ("refused: a quoted name", apply("Object{`a-b`: 1}")), ("refused: a variable", apply("variables.x"))]:
    mutates(name, mutation)
mutates("refused: deletions", apply("Object{}"), constraints={"resourceRules": [rule(operations=["DELETE", "CONNECT"])]})
mutates("refused: an empty match policy", apply("Object{}"), constraints={"resourceRules": [RULE], "matchPolicy": ""})


class Server:
    def __init__(self, url, cert, key, ca):
        self.host = urllib.parse.urlparse(url).netloc
        self.context = ssl.create_default_context(cafile=ca)
        self.context.load_cert_chain(cert, key)
        self.connection = None

    def send(self, method, path, body=None, type="application/json", user=None, groups=()):
        headers = [("Content-Type", type), ("User-Agent", "recorder")]
        if user:
            headers += [("Impersonate-User", user)] + [("Impersonate-Group", group) for group in groups]
        if not self.connection:
            self.connection = http.client.HTTPSConnection(self.host, context=self.context)
        self.connection.putrequest(method, path)
        data = json.dumps(body).encode() if body is not None else b""
        for header in headers + [("Content-Length", str(len(data)))]:
            self.connection.putheader(*header)
        self.connection.endheaders(data)
        answer = self.connection.getresponse()
        text = answer.read()
        return answer.status, [value for name, value in answer.getheaders() if name.lower() == "warning"], json.loads(text)


def answer(code, warnings, body):
    if code >= 300:
        shown = {field: body[field] for field in ("reason", "message", "details") if field in body}
    else:
        shown = {field: body[field] for field in ("spec", "data", "kind") if field in body and body["kind"] != "Status"}
        shown.update({field: body["metadata"][field] for field in ("labels", "annotations") if field in body.get("metadata", {})})
        if "metadata" in body and "managedFields" in body["metadata"]:
            shown["owners"] = [{name: value for name, value in entry.items() if name != "time"} for entry in body["metadata"]["managedFields"]]
    # The suffix of a generated name is random.
    return json.loads(re.sub("gen-[a-z0-9]{5}", "gen-", json.dumps({"code": code, "warnings": warnings, **shown})))


def main():
    url, cert, key, ca, output = sys.argv[1:6]
    server = Server(url, cert, key, ca)
    only = sys.argv[6:]
    server.send("POST", "/api/v1/namespaces", {**meta("Namespace", "v1", NS, labels={"env": "test"})})
    account = lambda name: meta("ServiceAccount", "v1", name)
    canaries = [vap(v("false"), name="kw-canary", constraints={"resourceRules": [rule(resources=["serviceaccounts"], resourceNames=["kw-canary"])]}), vapb("kw-canary", "kw-canary"),
                mapo(apply("Object{metadata: Object.metadata{labels: {'canary': 'yes'}}}"), name="kw-canary", constraints={"resourceRules": [rule(resources=["serviceaccounts"], resourceNames=["kw-mutated"])]}), mapb("kw-canary", "kw-canary")]
    # New kinds are known to policies only after a while.
    server.send("POST", path(WIDGETS), WIDGETS)
    time.sleep(40)
    for one in cases:
        if only and one["case"] not in only:
            continue
        created = []
        answers = []
        for of in one["setup"] + one["policies"] + canaries:
            code, _, body = server.send("POST", path(of), of)
            if code >= 300 and of in one["policies"]:
                answers.append(answer(code, [], body))
            elif code >= 300 and of is not WIDGETS:
                sys.exit(f"{one['case']}: {body}")
            if of is not WIDGETS:
                created.append(of)
        one["refused"] = answers
        def is_active():
            denied = server.send("POST", path(account("kw-canary")) + "?dryRun=All", account("kw-canary"))
            mutated = server.send("POST", path(account("kw-mutated")) + "?dryRun=All", account("kw-mutated"))
            return denied[0] == 422, bool(mutated[2].get("metadata", {}).get("labels"))

        def wait(state):
            deadline = time.time() + 20
            while is_active() != state:
                if time.time() > deadline:
                    sys.exit(f"{one['case']}: the policies don't become {state}")
                time.sleep(0.1)

        wait((True, True))
        # Parameters are known later.
        time.sleep(2 if any("paramKind" in of["spec"] for of in one["policies"]) else 0.3)
        one["answers"] = []
        for request in one["requests"]:
            one["answers"].append(answer(*server.send(request["method"], request["path"], request.get("body"), request.get("type", "application/json"),
                                                      request.get("user"), request.get("groups", ()))))
        policies = [of for of in created if "admissionregistration" in of["apiVersion"]]
        for of in policies + [of for of in reversed(created) if of not in policies]:
            if of is policies[-1]:
                # The other objects remain until no policy prevents their deletion.
                server.send("DELETE", f"{path(of)}/{of['metadata']['name']}")
                wait((False, False))
                continue
            server.send("DELETE", f"{path(of)}/{of['metadata']['name']}")
        print(one["case"], [a["code"] for a in one["answers"]], one["refused"], flush=True)
        with open(output, "w") as file:
            text = json.dumps({"namespace": NS, "cases": [c for c in cases if "answers" in c]}, separators=(",", ":"))
            file.write(text.replace('{"case":', '\n{"case":') + "\n")
    server.send("DELETE", f"{path(WIDGETS)}/{WIDGETS['metadata']['name']}")
    server.send("DELETE", f"/api/v1/namespaces/{NS}")


if __name__ == "__main__":
    main()
