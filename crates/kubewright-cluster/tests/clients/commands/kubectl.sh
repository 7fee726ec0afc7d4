#!/usr/bin/env bash
# kubectl against the cluster of KUBECONFIG.

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=check.sh
. "$here/check.sh"

kubectl create namespace kubectl
kubectl config set-context --current --namespace=kubectl >/dev/null

deployment() {
    cat <<YAML
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1}
spec:
  replicas: 1
  selector: {matchLabels: {app: $1}}
  $2
  template:
    metadata: {labels: {app: $1}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: main, image: busybox, command: [sleep, "1000"]}
YAML
}

case_version() {
    contains "$(kubectl version)" "Server Version: v1.36"
    # The server is not a pre-release, and kubectl finds no skew.
    ! kubectl version 2>&1 | grep -i "warning"
}

case_apply_recreate() {
    deployment recreated "" | kubectl apply -f -
    kubectl rollout status deployment/recreated --timeout=30s
    deployment recreated "strategy: {type: Recreate}" | kubectl apply -f -
    [ "$(kubectl get deployment recreated -o 'jsonpath={.spec.strategy}')" = '{"type":"Recreate"}' ]
    kubectl rollout status deployment/recreated --timeout=30s
}

case_apply_server_side() {
    deployment applied "" | kubectl apply --server-side -f -
    contains "$(deployment applied "" | kubectl apply --server-side -f -)" serverside-applied
    deployment applied "paused: true" | kubectl apply --server-side -f -
    [ "$(kubectl get deployment applied -o 'jsonpath={.spec.paused}')" = true ]
    ! deployment applied "paused: false" | kubectl apply --server-side --field-manager=other -f -
}

case_replace() {
    kubectl create configmap replaced --from-literal=a=1
    kubectl get configmap replaced -o yaml | sed 's/a: "1"/a: "2"/' | kubectl replace -f -
    [ "$(kubectl get configmap replaced -o 'jsonpath={.data.a}')" = 2 ]
}

case_edit() {
    kubectl create configmap edited --from-literal=a=1
    printf '#!/bin/sh\nsed -i "s/^  a:/  b:/" "$1"\n' >editor
    chmod +x editor
    KUBE_EDITOR=$work/editor kubectl edit configmap edited
    [ "$(kubectl get configmap edited -o 'jsonpath={.data}')" = '{"b":"1"}' ]
}

case_patch() {
    kubectl create configmap patched --from-literal=a=1
    kubectl patch configmap patched -p '{"data": {"a": "2"}}'
    kubectl patch configmap patched --type merge -p '{"data": {"a": null, "b": "1"}}'
    kubectl patch configmap patched --type json -p '[{"op": "add", "path": "/data/c", "value": "1"}]'
    [ "$(kubectl get configmap patched -o 'jsonpath={.data}')" = '{"b":"1","c":"1"}' ]
}

case_diff() {
    deployment compared "" | kubectl apply -f -
    deployment compared "" | kubectl diff -f -
    ! deployment compared "minReadySeconds: 1" | kubectl diff -f -
}

case_scale() {
    kubectl create deployment scaled --image=busybox -- sleep 1000
    kubectl scale deployment/scaled --replicas=2
    kubectl wait --for=jsonpath='{.status.readyReplicas}'=2 --timeout=30s deployment/scaled
    kubectl scale deployment/scaled --current-replicas=2 --replicas=0
    ! kubectl scale deployment/scaled --current-replicas=2 --replicas=1
}

case_rollout() {
    kubectl create deployment rolled --image=busybox:1 -- sleep 1000
    kubectl rollout status deployment/rolled --timeout=30s
    kubectl set image deployment/rolled busybox=busybox:2
    kubectl rollout status deployment/rolled --timeout=30s
    kubectl rollout undo deployment/rolled
    kubectl rollout status deployment/rolled --timeout=30s
    [ "$(kubectl get deployment rolled -o 'jsonpath={.spec.template.spec.containers[0].image}')" = busybox:1 ]
}

case_logs() {
    kubectl run logger --image=busybox --restart=Never -- sh -c 'for i in 1 2 3; do echo $i; sleep 0.2; done'
    kubectl wait --for=jsonpath='{.status.phase}'=Running --timeout=30s pod/logger || true
    [ "$(kubectl logs -f logger | tr '\n' ' ')" = "1 2 3 " ]
    [ "$(kubectl logs logger --tail=1)" = 3 ]
}

case_watch() {
    kubectl create configmap watched --from-literal=a=1
    kubectl get configmap watched -w -o 'jsonpath={.data.a}{"\n"}' >watched &
    local watcher=$!
    until_succeeds grep -x 1 watched
    kubectl patch configmap watched -p '{"data": {"a": "2"}}'
    until_succeeds grep -x 2 watched
    kill $watcher
}

case_wait_for_deletion() {
    kubectl run doomed --image=busybox --restart=Never -- sleep 1000
    kubectl wait --for=condition=Ready --timeout=30s pod/doomed
    kubectl delete pod doomed --grace-period=0 --force
    kubectl wait --for=delete --timeout=30s pod/doomed
}

case_drain() {
    kubectl create deployment drained --image=busybox --replicas=2 -- sleep 1000
    kubectl rollout status deployment/drained --timeout=30s
    local node
    node=$(kubectl get node -o 'jsonpath={.items[0].metadata.name}')
    kubectl drain "$node" --pod-selector=app=drained --grace-period=0 --timeout=30s
    kubectl uncordon "$node"
    kubectl rollout status deployment/drained --timeout=30s
}

case_token() {
    kubectl create serviceaccount robot
    local token
    token=$(kubectl create token robot --duration=20m)
    touch nobody
    contains "$(kubectl auth whoami --token="$token" --kubeconfig="$work/nobody" --server="$(server)" \
        --insecure-skip-tls-verify)" "system:serviceaccount:kubectl:robot"
}

server() {
    kubectl config view --minify -o 'jsonpath={.clusters[0].cluster.server}'
}

case_explain() {
    contains "$(kubectl explain deployment.spec.strategy)" "RollingUpdate"
    contains "$(kubectl explain deployment --recursive)" "matchLabels"
}

case_errors() {
    contains "$(kubectl get configmap absent 2>&1 || true)" 'Error from server (NotFound): configmaps "absent" not found'
    contains "$(kubectl create configmap No_Name 2>&1 || true)" 'ConfigMap "No_Name" is invalid: metadata.name'
    contains "$(kubectl get absent 2>&1 || true)" "the server doesn't have a resource type \"absent\""
}

case_exec() {
    kubectl run target --image=busybox --restart=Never -- sleep 1000
    kubectl wait --for=condition=Ready --timeout=30s pod/target
    [ "$(kubectl exec target -- echo hello)" = hello ]
    [ "$(echo text | kubectl exec -i target -- cat)" = text ]
    local status=0
    kubectl exec target -- sh -c 'exit 3' || status=$?
    [ $status -eq 3 ]
    contains "$(kubectl exec target -- no-such-tool 2>&1 || true)" "executable file not found"
}

case_cp() {
    kubectl run files --image=busybox --restart=Never -- sleep 1000
    kubectl wait --for=condition=Ready --timeout=30s pod/files
    mkdir folder
    head -c 1000000 /dev/zero >folder/zeros
    kubectl cp folder files:copy
    kubectl cp files:copy back
    cmp folder/zeros back/zeros
}

case_attach() {
    # The container runs until its input ends, which is open for one client.
    [ "$(echo text | kubectl run attached --image=busybox --restart=Never --quiet -i --rm -- cat)" = text ]
}

case_port_forward() {
    # kubectl ends at the first connection that the pod refuses, so the pod has to be ready.
    kubectl run server --image=busybox --restart=Never --overrides '{"spec": {"containers": [{
        "name": "server", "image": "busybox",
        "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "command": ["sh", "-c", "echo from the pod >index.html; exec python3 -m http.server 8080 --bind $IP"],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    }]}}'
    kubectl wait --for=condition=Ready --timeout=30s pod/server
    kubectl port-forward pod/server :8080 >forwarded 2>&1 &
    local forward=$! status=0
    until_succeeds grep -q Forwarding forwarded || status=1
    local port
    port=$(sed -n 's/.*127.0.0.1:\([0-9]*\) .*/\1/p' forwarded | head -n 1)
    answers() { curl -fsS "http://127.0.0.1:$port/" >page && grep -q "from the pod" page; }
    until_succeeds answers || status=1
    kill $forward
    return $status
}

for name in version apply-recreate apply-server-side replace edit patch diff scale rollout logs watch \
    wait-for-deletion drain token explain errors exec cp attach port-forward; do
    check kubectl $name
done
exit $failed
