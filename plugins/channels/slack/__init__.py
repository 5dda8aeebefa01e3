"""The channel for Slack, over Socket Mode and the Web API.

slack_api        Calls of the Web API, and what their errors mean.
slack_blocks     Markdown as blocks of rich text.
slack_catch_up   How far each conversation was received, and what was written while there was no connection.
slack_channel    The channel.
slack_delivery   Posts and files, each sent once.
slack_events     What Slack's events say.
socket_mode      The connections over which events arrive.
"""
