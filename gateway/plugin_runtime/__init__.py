"""Plugins at run time: their services, life cycle and supervision.

development      `exuvia run --plugin DIR`: reload a plugin when it is saved.
lifecycle        Notifications: the gateway starts or stops, a turn ended.
plugin_loading   The plugins that the configuration allows, and instances of what they provide.
service_factory  Model requests, embeddings and logs for plugins.
watchdog         Detection of a blocked event loop, and a bounded shutdown.
"""
