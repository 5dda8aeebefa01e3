"""A bot written with discord.py, run by tests/channels/test_discord_clients.py with the URLs of the fake and a token.

It answers each message with its text, offers a button where the text begins with "ask", and says which button was pressed.
"""

import io
import sys

import discord
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import Route

rest, gateway, token = sys.argv[1:]
Route.BASE = rest
DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(gateway)


class Bot(discord.Client):
    async def on_message(self, message):
        if message.author.bot:
            return
        files = [
            discord.File(io.BytesIO(await attachment.read()), attachment.filename) for attachment in message.attachments
        ]
        view = discord.utils.MISSING
        if message.content.startswith("ask"):
            view = discord.ui.View(timeout=None)
            view.add_item(discord.ui.Button(label="Yes", custom_id="yes-1"))
        async with message.channel.typing():
            await message.reply(
                f"echo: {message.content}",
                files=files,
                view=view,
                nonce=str(message.id),
                allowed_mentions=discord.AllowedMentions.none(),
            )

    async def on_raw_message_edit(self, payload):
        await self._channel(payload.channel_id).send(f"edited: {payload.message.content}")

    async def on_raw_message_delete(self, payload):
        await self._channel(payload.channel_id).send("deleted")

    async def on_raw_reaction_add(self, payload):
        await self._channel(payload.channel_id).send(f"reaction: {payload.emoji.name}")

    async def on_interaction(self, interaction):
        await interaction.response.defer()
        await interaction.channel.send(f"pressed: {interaction.data['custom_id']}")

    def _channel(self, number):
        return self.get_channel(number) or self.get_partial_messageable(number)


intents = discord.Intents.none()
intents.guilds = intents.messages = intents.reactions = intents.message_content = True
Bot(intents=intents, heartbeat_timeout=15.0).run(token)
