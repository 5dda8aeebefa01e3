"""Authentication: people, tokens, cookies, and which hosts and origins are allowed.

access         Access rules: tokens, cookies, one-time links, hosts and origins.
limits         Limits before authentication: wrong tokens, open connections.
people         The people of a gateway and their tokens.
people_log     The people who were added while the gateway ran, and who did what about them.
proxy_header   Sign-in by the header of a reverse proxy.
relay_tokens   Tokens with which one gateway tells another whom it has admitted.
sign_ins       The browsers that are signed in.
signed_tokens  Signed cookies and one-time links, and sign-outs.
token          The gateway's token.
"""
