"""Loading plugins and calling their hooks.

decision_hooks      Asking plugins to decide something inside a turn
hooks               `Hooks`
implementations     Who implements one hook, and who of them is let be
loading             Which plugins there are
notification_hooks  Telling plugins what happens
plugin_folder       A plugin in a folder, as its author has it
registry            What plugins provide
validation          Whether what a plugin hands over is what it promised.
"""
