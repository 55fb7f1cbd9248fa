"""Autotuning: measured device configs, stored by device kind."""
