"""Fabric, used as in its documentation: `run` on a ThreadingGroup."""

from __future__ import annotations

import sys
from pathlib import Path

import fabric
import paramiko

hosts_file, user, port, key, known_hosts, text = sys.argv[1:]
login = paramiko.PKey.from_path(key)
group = fabric.ThreadingGroup(
    *Path(hosts_file).read_text().split(),
    user=user,
    port=int(port),
    connect_kwargs={"pkey": login, "allow_agent": False, "look_for_keys": False},
)
for connection in group:
    connection.client.load_host_keys(known_hosts)
    connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
for connection, result in group.run(text, hide=True).items():
    print(connection.host, result.stdout)
