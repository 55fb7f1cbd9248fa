"""parallel-ssh: libssh2 in C under gevent. It does not verify host keys."""

from __future__ import annotations

import sys
from pathlib import Path

from pssh.clients import ParallelSSHClient

hosts_file, user, port, key, text = sys.argv[1:]
hosts = Path(hosts_file).read_text().split()
client = ParallelSSHClient(hosts, user=user, port=int(port), pkey=key, pool_size=len(hosts), allow_agent=False)
for output in client.run_command(text):
    for line in output.stdout:
        print(output.host, line)
