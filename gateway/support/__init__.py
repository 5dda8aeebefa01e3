"""Modules that every package of `gateway` may use.

approval_text     Questions about tool calls, as people read them
clock             The system's clock
errors            The gateway's exceptions
home              The gateway's home directory
instance_address  The address of the gateway that runs on a home
logs              Structured logging
printable         Text that is safe to write to a terminal
resource_limits   The limits on address space and file descriptors
sentences         One-line descriptions of events
service_unit      The systemd unit
session_export     Exports of sessions in several formats.
session_status    The text of `/status`
small_files       Bounded reads and durable replacement of small files
storage           The logs and attachments of a home, for reading
stored_sessions   Listing, finding and reading stored sessions
"""
