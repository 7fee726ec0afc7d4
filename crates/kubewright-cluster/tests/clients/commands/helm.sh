#!/usr/bin/env bash
# helm against the cluster of KUBECONFIG.

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=check.sh
. "$here/check.sh"

export HELM_CACHE_HOME=$work/cache HELM_CONFIG_HOME=$work/config HELM_DATA_HOME=$work/data HELM_NAMESPACE=helm
kubectl create namespace helm

# The chart that `helm create` writes. Its image is nginx, in whose place the node runs a web server of the shell tools.
chart() {
    [ -d web ] || helm create web >/dev/null
    sed -i 's/^kubeVersion:.*//' web/Chart.yaml
    echo 'kubeVersion: ">=1.25.0"' >>web/Chart.yaml
}

# The settings with which the pods of the chart run on the embedded node.
values() {
    cat >values.yaml <<YAML
image: {repository: busybox, tag: latest}
livenessProbe: null
readinessProbe: {exec: {command: ["true"]}, httpGet: null}
httpRoute: {enabled: false}
YAML
    # The chart has no setting for the command of its container.
    if ! grep -q "sleep" web/templates/deployment.yaml; then
        sed -i 's/^\( *\)imagePullPolicy:/\1command: [sleep, "1000"]\n\1imagePullPolicy:/' web/templates/deployment.yaml
    fi
}

case_install() {
    chart
    values
    helm install site ./web -f values.yaml --wait --timeout 60s
    [ "$(kubectl -n helm get deployment site-web -o 'jsonpath={.status.readyReplicas}')" = 1 ]
}

case_upgrade() {
    helm upgrade site ./web -f values.yaml --set replicaCount=2 --wait --timeout 60s
    [ "$(kubectl -n helm get deployment site-web -o 'jsonpath={.status.readyReplicas}')" = 2 ]
}

case_rollback() {
    helm rollback site 1 --wait --timeout 60s
    [ "$(kubectl -n helm get deployment site-web -o 'jsonpath={.spec.replicas}')" = 1 ]
}

case_history() {
    [ "$(helm history site -o json | tr ',' '\n' | grep -c '"revision"')" = 3 ]
    contains "$(helm list -o json)" '"status":"deployed"'
}

case_uninstall() {
    helm uninstall site --wait --timeout 60s
    [ -z "$(kubectl -n helm get deployment,service,serviceaccount -l app.kubernetes.io/instance=site -o name)" ]
    [ -z "$(kubectl -n helm get secret -l owner=helm -o name)" ]
}

case_kube_version() {
    chart
    contains "$(helm template site ./web --kube-version 1.36.3)" "kind: Deployment"
    helm install --dry-run=server named ./web >/dev/null
}

case_lookup() {
    chart
    mkdir -p look/templates
    cp web/Chart.yaml look/Chart.yaml
    # The braces are helm's.
    cat >look/templates/map.yaml <<'YAML'
apiVersion: v1
kind: ConfigMap
metadata: {name: found}
data: {namespace: {{ (lookup "v1" "Namespace" "" "helm").metadata.name | quote }}}
YAML
    helm install look ./look
    [ "$(kubectl -n helm get configmap found -o 'jsonpath={.data.namespace}')" = helm ]
}

case_hooks() {
    mkdir -p hooked/templates
    chart
    cp web/Chart.yaml hooked/Chart.yaml
    cat >hooked/templates/job.yaml <<'YAML'
apiVersion: batch/v1
kind: Job
metadata: {name: before, annotations: {helm.sh/hook: pre-install, helm.sh/hook-delete-policy: before-hook-creation}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox, command: [echo, done]}]
YAML
    helm install hooked ./hooked --timeout 60s
    [ "$(kubectl -n helm get job before -o 'jsonpath={.status.succeeded}')" = 1 ]
}

for name in kube-version install upgrade rollback history uninstall lookup hooks; do
    check helm $name
done
exit $failed
