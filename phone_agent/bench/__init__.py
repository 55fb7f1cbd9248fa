"""How fast this machine trains: whole steps (`compute`) and one kernel at a time (`kernels`)."""
