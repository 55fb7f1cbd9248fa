"""From bare Termux to worker, one module a step.

A step says what it would change from facts alone (`check`), does it (`apply`), and has succeeded when `check` finds
nothing more to change in fresh facts.
"""
