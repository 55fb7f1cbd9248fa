"""Time-outs, one per phase of a connection."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Timeouts:
    """Seconds."""

    tcp: float = 5.0
    banner: float = 8.0  # Android may have to wake Termux first
    kex: float = 15.0
    auth: float = 15.0
    channel: float = 15.0  # opening a session on an established connection
    silence: float = 10.0  # TCP keepalive: a peer that acknowledges nothing for this long is lost
    time_scale: float = 1.0  # factor on the time-outs of commands

    def scaled(self, time_scale: float) -> Timeouts:
        """Longer time-outs for slower (emulated) phones. The TCP time-out and keepalive stay."""
        return replace(
            self,
            banner=self.banner * time_scale,
            kex=self.kex * time_scale,
            auth=self.auth * time_scale,
            channel=self.channel * time_scale,
            time_scale=time_scale,
        )
