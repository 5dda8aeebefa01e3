"""What lies in `tides` is somebody else's package: its own tests run in the environment that it is installed into."""

collect_ignore = ["tides"]
