"""The Telegram channel. It speaks the Bot API itself, over the gateway's HTTP client.

bot_api            Requests to the Bot API, and what its answers mean.
bot_updates        Updates of the Bot API as values, and their texts and files.
telegram_channel   The channel: the connection, sending, typing and drafts.
telegram_entities  Markdown as text with entities.
telegram_state     What is kept on disk.
update_queue       Polling, in the order of chats, confirming what is handled.
update_reader      Updates as messages for the gateway.
"""
