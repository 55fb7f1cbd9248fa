"""Autotuning: measures which backend, threads, cores and tiles are fastest on this phone, within a time budget."""
