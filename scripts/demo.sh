#!/usr/bin/env bash
# The whole story on one machine: four virtual phones on two switches, from bare Termux to collected logs.
# Works in a state directory of its own, so it disturbs neither a lab of yours nor your cluster's keys.
set -euo pipefail
cd "$(dirname "$0")/.."

export PATH="$PWD/.venv/bin:$PATH"
CLUSTERCTL_STATE=$(mktemp -d "${TMPDIR:-/tmp}/clusterctl-demo.XXXXXX")
export CLUSTERCTL_STATE
unset CLUSTERCTL_INVENTORY

clean_up() {
  clusterctl lab down >/dev/null 2>&1 || true
  rm -rf "$CLUSTERCTL_STATE"
}
trap clean_up EXIT

say() { printf '\n\033[1m$ clusterctl %s\033[0m\n' "$*"; }
step() { say "$@"; clusterctl "$@"; }

step lab up --phones 4 --switches 2
step inventory show
step provision
step launch --model lenet --steps 60
step status
step collect-logs --out logs
step lab down

cat <<'NEXT'

That was a training cluster. What to try next (`source .venv/bin/activate` puts clusterctl on your PATH):
  clusterctl lab up --phones 12 --switches 3      # more phones; 138 on 3 switches is the paper's rack
  clusterctl provision && clusterctl launch --detach && clusterctl attach
  clusterctl lab set p1-01 thermal.cpu=85 && clusterctl status
  clusterctl bench allreduce --mb 25 --order interleaved   # why the inventory lists switch ports
  $EDITOR inventory.yaml                           # your own rack: docs/guide/first-rack.md
NEXT
