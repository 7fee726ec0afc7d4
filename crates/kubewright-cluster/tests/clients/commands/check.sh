# What the suites of commands share. A suite calls `check CLIENT CASE` for each of its functions.

set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# Runs the function of a case in a shell of its own, which ends at the first command that fails, and prints one line.
check() {
    local client=$1 name=$2 status=0
    # `set -e` has no effect in a condition, so the status is taken afterwards.
    set +e
    (set -euo pipefail; cd "$work"; "case_${name//-/_}") >"$work/said" 2>&1
    status=$?
    set -e
    if [ $status -eq 0 ]; then
        echo "ok $client $name"
    else
        echo "FAIL $client $name: $(tail -n 3 "$work/said" | tr '\n' ' ')"
        failed=1
    fi
}

# Fails unless a text contains another.
contains() {
    case $1 in *"$2"*) ;; *) echo "expected \"$2\" in: $1"; return 1 ;; esac
}

# Waits until a command succeeds.
until_succeeds() {
    local tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || { echo "timed out waiting for: $*"; "$@"; return 1; }
        sleep 0.1
    done
}
