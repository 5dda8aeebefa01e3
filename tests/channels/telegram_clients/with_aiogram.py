"""A bot written with aiogram, run by tests/channels/test_telegram_clients.py with the URL of the fake and a token.

It does what the bot in with_ptb does.
"""

import asyncio
import sys

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import TelegramBadRequest
from aiogram.types import BotCommand, BufferedInputFile, InlineKeyboardButton, InlineKeyboardMarkup, MessageEntity

url, token = sys.argv[1:]
bot = Bot(token, session=AiohttpSession(api=TelegramAPIServer.from_base(url)))
dispatcher = Dispatcher()


@dispatcher.message()
async def answer(message):
    await bot.send_chat_action(message.chat.id, "typing")
    if message.document or message.photo:
        content = (await bot.download(message.document or message.photo[-1])).read()
        if message.photo:
            await message.reply_photo(BufferedInputFile(content, "photo.png"), caption=f"echo: {message.caption}")
        else:
            await message.reply_document(BufferedInputFile(content, message.document.file_name))
    elif message.text.startswith("ask"):
        yes = InlineKeyboardButton(text="Yes", callback_data="yes-1")
        await message.answer("Well?", reply_markup=InlineKeyboardMarkup(inline_keyboard=[[yes]]))
    elif message.text == "refuse":
        try:
            await message.answer("x" * 4097)
        except TelegramBadRequest as error:
            await message.answer(f"refused: {error.message}")
    else:
        await message.reply(f"echo: {message.text}", entities=[MessageEntity(type="bold", offset=0, length=4)])


@dispatcher.edited_message()
async def edited(message):
    await bot.send_message(message.chat.id, f"edited: {message.text}")


@dispatcher.callback_query()
async def pressed(query):
    await query.answer("Thanks.")
    await query.message.edit_text(f"pressed: {query.data}")


@dispatcher.message_reaction()
async def reacted(update):
    (reaction,) = update.new_reaction
    await bot.send_message(update.chat.id, f"reaction: {reaction.emoji}")


async def main():
    await bot.set_my_commands([BotCommand(command="help", description="Show the commands")])
    await dispatcher.start_polling(bot, handle_signals=False)


asyncio.run(main())
