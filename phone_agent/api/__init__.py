"""What the host may call of the agent, besides phone_agent.contract. Nothing else of the agent is imported there.

models       networks by name, their graphs and their descriptions
memory       the memory that training takes, the largest batch that fits
training     checks of optimizer, schedule, augmentation and frozen layers; weights and checkpoints
inference    a trained network on this computer
measure      benchmarks, LINPACK, the device study, the self-test of phones
forecast     plan of a training step and cost model of its communication
bundle       files of the agent, as phones get them

Importing this package imports none of them: most need numpy, and `clusterctl --help` must not load it.
"""
