"""The fastest way to compute on this phone (backend, threads, cores, tiles), by measurement in bounded time."""
