"""The OpenAI endpoint: programs that speak OpenAI's API reach the gateway's models and sessions.

mounting      where it is reached; everything else is imported when somebody first asks
api           who asks for what below `/v1`
places        how many requests are answered at once
forms         what may stand in a body; asked: the same in the house's own values
picture_urls  pictures as `data:` addresses
stateless     an answer without a session; listening: a provider's stream, relied on
in_hand       how many of those are being given, which a stop lets end
in_session    an answer by a session; telling: what of its events answers a message
embeddings    vectors, by whoever makes the memory's
stop_words    where a client wants an answer to end
saying        the answer on its way to the client; replies: its form
model_names   `exuvia`, and `provider:model`
refusals      what goes wrong, in OpenAI's form
"""
