"""A quick test whether any phone of an inventory can be reached, before hundreds of connections time out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from orchestrator.inventory.model import Phone

TIMEOUT_S = 3.0
_BANNER = b"SSH-"


def any_reachable(phones: Sequence[Phone], timeout_s: float = TIMEOUT_S) -> bool:
    """Whether some phone answers on its SSH port. Tries all of them at the same time."""
    return asyncio.run(_any_reachable(phones, timeout_s))


async def _any_reachable(phones: Sequence[Phone], timeout_s: float) -> bool:
    attempts = [asyncio.create_task(_connect(phone)) for phone in phones]
    try:
        for attempt in asyncio.as_completed(attempts, timeout=timeout_s):
            if await attempt:
                return True
    except TimeoutError:
        pass
    finally:
        for task in attempts:
            task.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
    return False


async def _connect(phone: Phone) -> bool:
    """Waits for the SSH banner: some networks have a proxy that accepts connections to any address."""
    try:
        reader, writer = await asyncio.open_connection(str(phone.address), phone.ssh_port)
    except OSError:
        return False
    try:
        return await reader.readexactly(len(_BANNER)) == _BANNER
    except (OSError, asyncio.IncompleteReadError):
        return False
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
