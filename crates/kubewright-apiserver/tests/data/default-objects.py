"""Records the objects that exist in a new Kubernetes cluster.

    python3 default-objects.py KUBECONFIG

The cluster must be new, and its controllers must run, since one of them completes the aggregated roles. Rewrites
default-objects.jsonl, one object a line, without what differs between clusters, and the table of default roles and bindings in
../../data/default-roles.txt."""

import json, os, subprocess, sys

FILE = __file__.removesuffix(".py") + ".jsonl"
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/default-roles.txt")
ROLES = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"]
OTHERS = ["namespaces", "apiservices", "priorityclasses", "prioritylevelconfigurations", "flowschemas"]
PART_OF = "rbac.authorization.k8s.io/aggregate-to-"


def recorded(kubeconfig, resource):
    command = ["kubectl", "--kubeconfig", kubeconfig, "get", resource, "-A", "-o", "json", "--show-managed-fields"]
    for item in json.loads(subprocess.check_output(command))["items"]:
        metadata = item["metadata"]
        for field in ("uid", "creationTimestamp", "resourceVersion"):
            del metadata[field]
        for entry in metadata["managedFields"]:
            del entry["time"]
        for condition in item.get("status", {}).get("conditions", []):
            del condition["lastTransitionTime"]
        yield item


def rule(rule):
    joined = lambda field: ",".join(one or "core" for one in rule[field])
    if "nonResourceURLs" in rule:
        return f"{joined('verbs')} {joined('nonResourceURLs')}"
    fields = ["verbs", "apiGroups", "resources"] + ["resourceNames"] * ("resourceNames" in rule)
    return " ".join(map(joined, fields))


def lines(item):
    metadata = item["metadata"]
    name = "/".join(filter(None, [metadata.get("namespace"), metadata["name"]]))
    if "roleRef" in item:
        yield f"{item['kind']} {name} {item['roleRef']['name']}"
        for subject in item.get("subjects", []):
            yield f"{subject['kind']} " + "/".join(filter(None, [subject.get("namespace"), subject["name"]]))
        return
    parts = [f"part-of={label.removeprefix(PART_OF)}" for label in metadata["labels"] if label.startswith(PART_OF)]
    aggregated = "aggregationRule" in item
    yield " ".join([item["kind"], name, *["aggregated"] * aggregated, *parts])
    if not aggregated:
        yield from map(rule, item["rules"])


def main():
    kubeconfig = sys.argv[1]
    items = {resource: list(recorded(kubeconfig, resource)) for resource in ROLES + OTHERS}
    with open(FILE, "w") as file:
        for item in (item for resource in items for item in items[resource]):
            print(json.dumps(item, separators=(",", ":"), sort_keys=True), file=file)
    with open(TABLE, "w") as file:
        print("# The default roles and bindings of Kubernetes 1.36.3, by tests/data/default-objects.py.", file=file)
        for line in (line for resource in ROLES for item in items[resource] for line in lines(item)):
            print(line, file=file)


main()
