"""Loading plugins and calling their hooks.

decision_hooks      Calling decision hooks during a turn.
hooks               The loaded plugins, their classes and their hooks.
implementations     The implementations of a hook, and disabling those that fail.
loading             Loading the built-in and the allowed installed plugins.
notification_hooks  Calling notification hooks.
plugin_folder       Loading a plugin from its source folder during development.
registry            The classes that plugins registered, by name.
validation          Validating plugins and the classes that they register.
"""
