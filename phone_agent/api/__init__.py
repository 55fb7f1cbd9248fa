"""What the host may call of the agent, besides phone_agent.contract. Nothing else of the agent is imported there.

models       networks by name, their graphs and their descriptions
memory       the memory that training takes, the largest batch that fits
training     checks of optimizer, schedule, augmentation and frozen layers
weights      weights and checkpoints
inference    a trained network on this computer
bench        compute and kernel benchmarks on this computer
forecast     plan of a training step and cost model of its communication
linpack      size and process grid of a LINPACK run
device_study networks of the device study
selftest     the assumptions that a phone checks
bundle       files of the agent, as phones get them

Importing this package imports none of them: most need numpy, and `clusterctl --help` must not load it.
"""
