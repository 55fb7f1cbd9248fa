"""Emulation of another CPU architecture: the source of the phones' programs, and the emulator that runs them."""
