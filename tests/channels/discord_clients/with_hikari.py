"""A bot written with hikari, run by tests/channels/test_discord_clients.py with the URLs of the fake and a token.

It does what the bot in with_discord_py does.
"""

import sys

import hikari

rest, _, token = sys.argv[1:]
intents = hikari.Intents.GUILDS | hikari.Intents.ALL_MESSAGES | hikari.Intents.MESSAGE_CONTENT
intents |= hikari.Intents.ALL_MESSAGE_REACTIONS
bot = hikari.GatewayBot(token, rest_url=rest, intents=intents, banner=None, suppress_optimization_warning=True)


@bot.listen()
async def on_message(event: hikari.MessageCreateEvent) -> None:
    if not event.is_human:
        return
    text = event.message.content or ""
    row = hikari.UNDEFINED
    if text.startswith("ask"):
        row = bot.rest.build_message_action_row()
        row.add_interactive_button(hikari.ButtonStyle.PRIMARY, "yes-1", label="Yes")
    await bot.rest.trigger_typing(event.channel_id)
    await bot.rest.create_message(
        event.channel_id,
        f"echo: {text}",
        attachments=[hikari.Bytes(await each.read(), each.filename) for each in event.message.attachments],
        component=row,
        reply=event.message_id,
        mentions_everyone=False,
        user_mentions=False,
        role_mentions=False,
    )


@bot.listen()
async def on_edit(event: hikari.MessageUpdateEvent) -> None:
    if event.message.author and not event.message.author.is_bot:
        await bot.rest.create_message(event.channel_id, f"edited: {event.message.content}")


@bot.listen()
async def on_delete(event: hikari.MessageDeleteEvent) -> None:
    await bot.rest.create_message(event.channel_id, "deleted")


@bot.listen()
async def on_reaction(event: hikari.ReactionAddEvent) -> None:
    await bot.rest.create_message(event.channel_id, f"reaction: {event.emoji_name}")


@bot.listen()
async def on_press(event: hikari.ComponentInteractionCreateEvent) -> None:
    await event.interaction.create_initial_response(hikari.ResponseType.DEFERRED_MESSAGE_UPDATE)
    await bot.rest.create_message(event.interaction.channel_id, f"pressed: {event.interaction.custom_id}")


bot.run(check_for_updates=False)
