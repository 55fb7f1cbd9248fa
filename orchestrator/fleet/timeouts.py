"""How long to wait for a phone, one limit a phase: a slow key exchange is not a missing cable."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Timeouts:
    """Seconds."""

    tcp: float = 5.0
    banner: float = 8.0  # Android may have to wake Termux up first
    kex: float = 15.0
    auth: float = 15.0
    channel: float = 15.0  # to open a session on a connection that stands
    silence: float = 10.0  # a peer that acknowledges nothing for this long is gone; the kernel watches
    slowness: float = 1.0  # what commands may take is multiplied by this

    def on_phones_so_slow(self, slowness: float) -> Timeouts:
        """For phones that take so many times as long for everything that a program does."""
        return replace(
            self,
            banner=self.banner * slowness,
            kex=self.kex * slowness,
            auth=self.auth * slowness,
            channel=self.channel * slowness,
            slowness=slowness,
        )
