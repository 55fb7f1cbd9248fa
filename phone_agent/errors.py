"""What can go wrong on a phone. Every message says what to look at; the host adds which phone it was."""

from __future__ import annotations


class AgentError(Exception):
    """The work cannot go on; the message is for a person."""
