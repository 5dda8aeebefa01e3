"""Discord: direct messages, servers, threads and forums. docs/channels/discord.md is its page.

The gateway's websocket and the REST API are spoken here, on aiohttp. discord.py and hikari count an event as received before
its handler runs, send that number to Discord with each heartbeat, and keep it in memory only: what was under way in a crash
would be lost.

discord_api        The REST API with its rate limits
discord_channel    The channel
discord_events     Messages and other events, and what they say
discord_gateway    The websocket: sessions, heartbeats, reconnection
discord_lanes      Events of a channel are handled in order, those of different channels concurrently
discord_markdown   Markdown as Discord reads it
discord_posts      Posts of the bot, each once
discord_progress   What has been received durably: the session to resume, and where to catch up from
discord_reception  What people do, passed on to the gateway
"""
