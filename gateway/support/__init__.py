"""Modules that every package of `gateway` may use.

address_space     The limit on the address space, and running out of memory
clock             The system's clock
descriptors       The limit on file descriptors, and the connections that it allows
errors            The gateway's exceptions
home              The gateway's home directory
instance_address  The address of the gateway that runs on a home
logs              Structured logging
printable         Text that is safe to write to a terminal
sentences         One-line descriptions of events
service_unit      The systemd unit
session_status    The text of `/status`
small_files       Bounded reads of small files
storage           The logs and attachments of a home, for reading
version           The version of Exuvia
"""
