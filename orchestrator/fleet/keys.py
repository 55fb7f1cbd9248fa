"""The key pairs of a cluster: made by ssh-keygen, ed25519, readable by their owner only."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import ClusterctlError, UsageError

if TYPE_CHECKING:
    from paramiko import PKey


def ensure_keypair(path: Path, comment: str) -> Path:
    """Makes `path` and `path.pub` unless they are there. Returns the public one."""
    public = path.with_name(path.name + ".pub")
    if not (path.exists() and public.exists()):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".keygen-") as scratch:
            fresh = Path(scratch) / "key"
            _keygen("-t", "ed25519", "-N", "", "-C", comment, "-f", str(fresh))
            fresh.with_name("key.pub").replace(public)
            fresh.replace(path)  # last, so that a private key always has its public half
    return public


def load_private_key(path: Path) -> PKey:
    """Read once for all phones."""
    from paramiko import PasswordRequiredException, PKey, SSHException

    try:
        return PKey.from_path(path)
    except FileNotFoundError:
        raise UsageError(
            f"no login key at {path}",
            remedy="clusterctl hosts key makes the cluster's own, unless ssh.key names another",
        ) from None
    except (PasswordRequiredException, TypeError):  # cryptography says TypeError for a missing passphrase
        raise UsageError(
            f"the login key {path} has a passphrase, and phones are reached without prompts",
            remedy="leave out ssh.key in the inventory to use the cluster's own key",
        ) from None
    except (SSHException, OSError, ValueError) as error:
        raise UsageError(
            f"cannot read the login key {path}: {error}", remedy=f"ssh-keygen -y -f {shlex.quote(str(path))}"
        ) from error


def _keygen(*arguments: str) -> None:
    done = subprocess.run(["ssh-keygen", "-q", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterctlError(f"ssh-keygen failed: {done.stderr.strip()}", remedy="apt-get install openssh-client")
