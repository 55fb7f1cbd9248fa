"""Our Fleet, used as in clusterctl: inventory, pinned host keys, one connection per phone, one command."""

from __future__ import annotations

import sys

from orchestrator.fleet import Fleet
from orchestrator.fleet.network import DirectNetwork
from orchestrator.inventory import load
from orchestrator.paths import ClusterState, lab_inventory

cluster = load(lab_inventory())
with Fleet(cluster.phones, ClusterState(cluster.name), DirectNetwork()) as fleet:
    outcomes = fleet.map(lambda phone: phone.run(["bash", "-c", sys.argv[1]]).stdout)
for outcome in outcomes:
    print(outcome.phone.name, outcome.value or outcome.error)
