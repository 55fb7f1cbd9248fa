"""What one device can do: networks timed, swept over width and depth, taken apart, and run beside others."""
