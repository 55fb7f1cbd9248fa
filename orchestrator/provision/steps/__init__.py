"""The steps from bare Termux to worker, one module per step. See `orchestrator.provision.engine`."""
