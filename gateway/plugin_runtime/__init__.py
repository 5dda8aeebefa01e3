"""Plugins at run time: their services, life cycle and watchdog.

development     `exuvia run --plugin DIR`
lifecycle       What plugins hear of the gateway's life
opened_plugins  What plugins provide besides models
plugin_log      The logs of plugins
services        What a plugin may use of the house besides
shutdown        An end in time
watchdog        Who holds up the event loop
"""
