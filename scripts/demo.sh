#!/usr/bin/env bash
# Four virtual phones on two switches, from bare Termux to collected logs. Uses a temporary state directory, so a running
# lab and the keys of your clusters are not affected.
set -euo pipefail
cd "$(dirname "$0")/.."

export PATH="$PWD/.venv/bin:$PATH"
CLUSTERCTL_STATE=$(mktemp -d "${TMPDIR:-/tmp}/clusterctl-demo.XXXXXX")
export CLUSTERCTL_STATE
unset CLUSTERCTL_INVENTORY

clean_up() {
  clusterctl lab down --force >/dev/null 2>&1 || true
  rm -rf "$CLUSTERCTL_STATE"
}
trap clean_up EXIT

step() {
  printf '\n\033[1m$ clusterctl %s\033[0m\n' "$*"
  clusterctl "$@"
}

step lab up --phones 4 --switches 2
step inventory show
step provision
step launch --model lenet --steps 60
step status
step collect-logs --out logs
step lab down

cat <<'NEXT'

Done. The demo lab has been removed. Try next (`source .venv/bin/activate` puts clusterctl on your PATH):
  clusterctl lab up --phones 12 --switches 3                    # the rack of the paper: 138 phones on 3 switches
  clusterctl provision
  clusterctl launch --model lenet --detach && clusterctl attach
  clusterctl lab set p1-01 thermal.cpu=85 && clusterctl status  # simulate a hot phone
  clusterctl bench allreduce --mb 25 --order interleaved        # compare with --order ring: why switch ports matter
  $EDITOR inventory.yaml                                        # your own rack: docs/guide/first-rack.md
NEXT
