"""The configuration: what may be said in it, where it is said, and what is in force.

keys                           every key, its type and its default
allowed_plugins                the plugins that are allowed, each with its own table
sources, fitting               file, environment and command line as one tree; values fitted to their types
checking, place                every fault, and in which line it stands
commands                       `exuvia config`; with showing and writing
secret_references              `env:`, `file:`, `credential:`
settings, reloading            the configuration in force; a saved file takes effect
small_files                    small files that people write, read within a bound
"""
