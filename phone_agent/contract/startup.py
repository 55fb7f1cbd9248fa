"""The phases of a rank's start-up. Each rank records when it enters one, as a sign of life."""

from __future__ import annotations

from enum import StrEnum


class StartupPhase(StrEnum):
    """In this order."""

    IMPORTING = "importing"
    STARTING_CHECKPOINT_SERVER = "starting_checkpoint_server"
    CONNECTING = "connecting"
    OPENING_DATA = "opening_data"
    MEASURING_LINKS = "measuring_links"
    PLANNING = "planning"
    LOADING_STATE = "loading_state"
    COMPILING = "compiling"
    SYNCHRONIZING = "synchronizing"
    FIRST_STEP = "first_step"
    TRAINING = "training"  # start-up is over

    @property
    def position(self) -> int:
        return list(StartupPhase).index(self)

    @property
    def waits(self) -> bool:
        """Whether the rank may be waiting for other ranks, so that CPU time proves nothing."""
        return self in _WAITING

    @property
    def description(self) -> str:
        """What the rank is doing."""
        return _DESCRIPTIONS[self]


_WAITING = frozenset(
    {
        StartupPhase.CONNECTING,
        StartupPhase.MEASURING_LINKS,
        StartupPhase.LOADING_STATE,
        StartupPhase.SYNCHRONIZING,
        StartupPhase.TRAINING,
    }
)
_DESCRIPTIONS = {
    StartupPhase.IMPORTING: "importing Python modules",
    StartupPhase.STARTING_CHECKPOINT_SERVER: "starting its checkpoint server",
    StartupPhase.CONNECTING: "connecting to the other ranks",
    StartupPhase.OPENING_DATA: "opening its data",
    StartupPhase.MEASURING_LINKS: "measuring the links",
    StartupPhase.PLANNING: "planning its memory",
    StartupPhase.LOADING_STATE: "loading the training state",
    StartupPhase.COMPILING: "compiling the model",
    StartupPhase.SYNCHRONIZING: "waiting for the other ranks",
    StartupPhase.FIRST_STEP: "computing its first step",
    StartupPhase.TRAINING: "training",
}
