"""The configuration: its keys, sources, validation and reloading.

allowed_plugins    The plugins that a configuration allows, loaded, each with what its own table says to it.
keys               The configuration
reloading          Hot reload
rendering          A configuration as it can be shown
secret_references  Where a secret really is
settings           The configuration in force
sources            Where configuration comes from, merged into one tree
validation         Fitting what was given to the form that a Struct has
"""
