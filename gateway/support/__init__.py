"""What every package of `gateway` may use.

address_space     Address space
clock             The system's clock, as plugins and the gateway see it.
descriptors       File descriptors
errors            What can go wrong on this floor, as one small tree.
home              The gateway's home
instance_address  Where a home's gateway listens
logs              Logs for operators
printable         Text that a terminal may be given
sentences         Sentences about events that people read in more than one place
service_unit      `exuvia service`
session_status    `/status`
small_files       Small files that people write
version           Which Exuvia this is.
"""
