"""What plugins provide, in the gateway: made, used with care, and replaced while it runs.

opened        tools, commands, summarizers and flushes, each made with what it is given
"""
