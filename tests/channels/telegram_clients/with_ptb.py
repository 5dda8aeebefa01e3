"""A bot written with python-telegram-bot, run by tests/channels/test_telegram_clients.py with the fake's URL and a token.

It answers each message with its text, with buttons where the text begins with "ask", sends files back, and says what was
pressed, edited or reacted with.
"""

import sys
from io import BytesIO

from telegram import BotCommand, InlineKeyboardButton, InlineKeyboardMarkup, MessageEntity, Update
from telegram.error import BadRequest
from telegram.ext import Application, CallbackQueryHandler, MessageHandler, MessageReactionHandler, filters

url, token = sys.argv[1:]


async def answer(update, _):
    message = update.message
    await message.chat.send_action("typing")
    if message.document or message.photo:
        file = await (message.document or message.photo[-1]).get_file()
        content = BytesIO(bytes(await file.download_as_bytearray()))
        if message.photo:
            await message.reply_photo(content, caption=f"echo: {message.caption}")
        else:
            await message.reply_document(content, filename=message.document.file_name)
    elif message.text.startswith("ask"):
        yes = InlineKeyboardButton("Yes", callback_data="yes-1")
        await message.reply_text("Well?", reply_markup=InlineKeyboardMarkup([[yes]]))
    elif message.text == "refuse":
        try:
            await message.chat.send_message("x" * 4097)
        except BadRequest as error:
            await message.chat.send_message(f"refused: {error}")
    else:
        bold = MessageEntity(MessageEntity.BOLD, 0, 4)
        await message.reply_text(f"echo: {message.text}", entities=[bold], do_quote=True)


async def edited(update, _):
    await update.edited_message.chat.send_message(f"edited: {update.edited_message.text}")


async def pressed(update, _):
    await update.callback_query.answer("Thanks.")
    await update.callback_query.edit_message_text(f"pressed: {update.callback_query.data}")


async def reacted(update, _):
    (reaction,) = update.message_reaction.new_reaction
    await update.message_reaction.chat.send_message(f"reaction: {reaction.emoji}")


async def started(application):
    await application.bot.set_my_commands([BotCommand("help", "Show the commands")])


application = (
    Application.builder().token(token).base_url(f"{url}/bot").base_file_url(f"{url}/file/bot").post_init(started).build()
)
application.add_handler(MessageHandler(filters.UpdateType.EDITED_MESSAGE, edited))
application.add_handler(MessageHandler(filters.UpdateType.MESSAGE & ~filters.StatusUpdate.ALL, answer))
application.add_handler(CallbackQueryHandler(pressed))
application.add_handler(MessageReactionHandler(reacted))
application.run_polling(allowed_updates=Update.ALL_TYPES, poll_interval=0.0)
