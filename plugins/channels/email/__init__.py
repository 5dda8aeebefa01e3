"""Email by IMAP and SMTP.

access_tokens    Logins by OAuth 2
email_channel    The channel
email_settings   Its configuration
html_text        HTML as Markdown
imap_client      The IMAP protocol
mailbox          Following a folder, each mail once
mime_reading     Headers, texts and files of mails
outbound_mail    Composing mails
port_security    Naming a wrong setting of TLS
reply_text       Replies without quotations and signatures
sender_checks    Who sent a mail, and whether a program did
sent_mails       The folder of sent mails
smtp_submission  Sending by SMTP
"""
