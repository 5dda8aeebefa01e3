"""The built-in channels. Each is a package with the name of its kind, and a plugin `KIND_channel` in it that is imported
only if a table of that kind is configured. They use what any plugin may use.

discord          Discord: direct messages, servers, threads and forums.
email/           Email by IMAP and SMTP.
formatting/      Formatting that several channels share.
irc              IRC, spoken on asyncio's streams: the smallest one, and an example.
matrix/          Rooms of Matrix.
slack            Slack, over Socket Mode.
service_library  Importing the library of a service, an optional dependency.
telegram         Telegram, over its Bot API.
webhook          Signed requests in and out, for services that have no channel of their own.
"""
