"""Plugins at run time: their services, life cycle and supervision.

development     `exuvia run --plugin DIR`: reload a plugin when it is saved.
lifecycle       Notifications: the gateway starts or stops, a turn ended.
opened_plugins  The tools, commands, summarizers and flushes of plugins.
plugin_log      The logs of plugins.
services        Model requests, embeddings and logs for plugins.
shutdown        A bounded shutdown.
watchdog        Detection of a blocked event loop.
"""
