"""`clusterctl selftest`: check our assumptions about phones on real ones, and write a report that can be shared."""
