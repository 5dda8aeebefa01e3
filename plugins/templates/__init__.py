"""Templates for new plugins.

packages  A new package for a plugin
"""
