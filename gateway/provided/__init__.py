"""What plugins provide, in the gateway: made, used with care, and replaced while it runs.

opened        tools, commands, summarizers and flushes, each made with what it is given
lifecycle     plugins hear that the gateway starts and ends, and of each turn
means         a model, vectors and a log of its own for each; own_log: that log
watchdog      who holds up the event loop is named, and ended; ending: the process ends in time
developing    a plugin that is loaded from its author's folder each time it is saved
"""
