#!/usr/bin/env bash
# Compares what kubectl prints on two clusters: the one of KUBECONFIG, and the one of the kubeconfig that is given.
#
#   kubewright cluster --pods simulate --wait -- compare.sh REAL_KUBECONFIG [WORD]
#
# Runs the commands of compare-commands.sh (those that contain WORD), in a namespace that is removed at the end, and
# prints a line for each: `same` or `differs`, with the differences. Times, ages, identifiers, generated names, addresses
# and ports are not compared. Pods don't run on a control plane without a kubelet, so no command waits for one.

set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
other=${1:?the kubeconfig of the cluster to compare with}
word=${2:-}
work=$(mktemp -d)
namespace=compare-$$
ours=$work/ours.kubeconfig
real=$work/real.kubeconfig
cp "$KUBECONFIG" "$ours"
cp "$other" "$real"
clusters=("$ours" "$real")

finish() {
    for cluster in "${clusters[@]}"; do
        kubectl --kubeconfig "$cluster" delete namespace "$namespace" --wait=false >/dev/null 2>&1
        kubectl --kubeconfig "$cluster" delete priorityclass important-compare >/dev/null 2>&1
    done
    rm -rf "$work"
}
trap finish EXIT

for cluster in "${clusters[@]}"; do
    kubectl --kubeconfig "$cluster" create namespace "$namespace" >/dev/null || exit 2
    kubectl --kubeconfig "$cluster" config set-context --current --namespace="$namespace" >/dev/null
    for _ in $(seq 100); do
        kubectl --kubeconfig "$cluster" get serviceaccount default >/dev/null 2>&1 && break
        sleep 0.1
    done
done

# Replaces what differs between any two clusters.
normalise() {
    sed -E \
        -e "s/$namespace/NAMESPACE/g" \
        -e 's/[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)/TIME/g' \
        -e 's/(Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} [+-][0-9]{4}/TIME/g' \
        -e 's/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/UID/g' \
        -e 's/(resourceVersion"?: ?"?)[0-9]+/\1VERSION/g' \
        -e 's/https?:\/\/[0-9.]+:[0-9]+/URL/g' \
        -e 's/\b(10|127|172|192|198)\.[0-9]+\.[0-9]+\.[0-9]+\b/ADDRESS/g' \
        -e 's/\b(3[0-2][0-9]{3})\b/NODEPORT/g' \
        -e 's/-[bcdf-hj-np-tv-z24-9]{8,10}-[bcdf-hj-np-tv-z24-9]{5}\b/-POD/g' \
        -e 's/-[bcdf-hj-np-tv-z24-9]{8,10}\b/-HASH/g' \
        -e 's/([a-z])-[bcdf-hj-np-tv-z24-9]{5}\b/\1-NAME/g' \
        -e 's/(^|[ (])[0-9]+(\.[0-9]+)?(ms|s|m|h|d)([0-9]+[smh])?\b/\1AGE/g' \
        -e 's/eyJ[A-Za-z0-9_.-]+/TOKEN/g' \
        -e 's/ +/ /g' -e 's/-{4,}/----/g' -e 's/ $//'
}

# Runs a command on a cluster, and prints what it prints and its exit code.
answer() {
    (
        export KUBECONFIG=$1 HOME=$work/home.$(basename "$1")
        cd "$here" && timeout 30 bash -c "$2" </dev/null 2>&1
        echo "exit code $?"
    ) | normalise
}

same=0 differs=0
while IFS= read -r command; do
    case $command in '' | '#'*) continue ;; esac
    [ -n "$word" ] && case $command in *"$word"*) ;; *) continue ;; esac
    answer "$ours" "$command" >"$work/a" &
    answer "$real" "$command" >"$work/b"
    wait
    if cmp -s "$work/a" "$work/b"; then
        same=$((same + 1))
        echo "same     $command"
    else
        differs=$((differs + 1))
        echo "differs  $command"
        diff "$work/b" "$work/a" | grep '^[<>]' | head -n 12 | cut -c1-220 | sed 's/^</    real /; s/^>/    ours /'
    fi
done < <(bash "$here/compare-commands.sh")
echo "$same of $((same + differs)) commands print the same"
