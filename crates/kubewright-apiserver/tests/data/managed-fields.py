"""Records which managed fields a Kubernetes API server answers to the requests of managed-fields.json.

    python3 managed-fields.py KUBECONFIG

Rewrites the file. Times are replaced, and entries of managers that no request names, such as controllers, are left out,
except for those of objects that are only read.
Of a step that "fails", code and message are recorded instead, without the differences that follow the first line."""

import base64, http.client, json, ssl, subprocess, sys, tempfile, time

FILE = __file__.removesuffix(".py") + ".json"


def connect(kubeconfig):
    config = json.loads(
        subprocess.check_output(["kubectl", "--kubeconfig", kubeconfig, "config", "view", "--raw", "-o", "json"])
    )
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as both:
        for part in ("client-certificate-data", "client-key-data"):
            both.write(base64.b64decode(user[part]) + b"\n")
        both.flush()
        context.load_cert_chain(both.name)
    return lambda: http.client.HTTPSConnection(cluster["server"].removeprefix("https://"), context=context)


def send(connection, method, path, kind, body):
    headers = {"Content-Type": kind or "application/json", "Accept": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read()
    # A new kind is not found at first.
    return answer.status, None if answer.status == 404 else json.loads(text)


def main():
    connection = connect(sys.argv[1])()
    with open(FILE) as file:
        scenarios = json.load(file)
    send(connection, "POST", "/api/v1/namespaces", None, {"metadata": {"name": "fields"}})
    time.sleep(1)
    for scenario in scenarios:
        for step in scenario["steps"]:
            for _ in range(100):
                code, answer = send(connection, step["method"], step["path"], step.get("type"), step.get("body"))
                if code != 404:
                    break
                time.sleep(0.1)
            if (code >= 300) != step.get("fails", False):
                sys.exit(f"{scenario['name']}: {step['path']}: {answer}")
            if code >= 300:
                step["error"] = [code, answer["message"].split("\n")[0]]
                continue
            named = [step["path"].split("fieldManager=")[-1].split("&")[0] for step in scenario["steps"]]
            named.append("before-first-apply")
            entries = answer["metadata"].get("managedFields", [])
            if step["method"] != "GET":
                entries = [entry for entry in entries if entry["manager"] in named]
            for entry in entries:
                if "time" in entry:
                    entry["time"] = "TIME"
            step["managedFields"] = entries
        for path in scenario["objects"]:
            send(connection, "DELETE", path, None, None)
    with open(FILE, "w") as file:
        lines = []
        for scenario in scenarios:
            steps = ",\n".join("   " + json.dumps(step) for step in scenario["steps"])
            head = f'{{"name": {json.dumps(scenario["name"])}, "objects": {json.dumps(scenario["objects"])}, "steps": ['
            lines.append(f"  {head}\n{steps}\n  ]}}")
        file.write("[\n" + ",\n".join(lines) + "\n]\n")


main()
