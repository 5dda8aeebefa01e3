"""Loading plugins and calling their hooks.

hook_calls  Calling decision and notification hooks, and disabling those that fail.
hooks       The loaded plugins, their classes and their hooks.
loading     Loading the built-in plugins, the allowed installed ones, and those in source folders.
registry    The classes that plugins registered, by name.
validation  Validating plugins and the classes that they register.
"""
