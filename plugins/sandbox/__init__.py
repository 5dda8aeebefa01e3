"""The sandbox for commands that a model chose.

bubblewrap          The arguments of bubblewrap, for the level `full`
command_supervisor  The program that starts a command, watches its limits and ends all of its processes
detection           Finding out which level works on this machine
landlock            The rules of Landlock, for the level `partial`
policy              What a command may do, and the levels
process             Starting a command, reading its output, and ending it
seccomp             The filter of system calls, for both levels
workspace_guard     The paths of a workspace that commands must not change
"""
