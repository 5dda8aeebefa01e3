"""Templates for new plugins.

packages  Creating a plugin package from a template.
"""
