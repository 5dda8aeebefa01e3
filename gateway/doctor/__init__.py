"""The checks of `exuvia doctor`.

config_check    Checking a configuration whole
findings        What a doctor's checks look at, and what they find.
home_checks     What a doctor looks at in a home
machine_checks  What a doctor looks at on the machine
memory_checks   Whether the memory's index can rest where it is to, and whether whoever makes its vectors can, and
                does.
model_checks    What a doctor asks about models
network_checks  What a doctor looks at on the network of this machine
"""
