"""Authentication: people, tokens, cookies, and which hosts and origins are allowed.

access           Access rules: tokens, cookies, one-time links, hosts and origins.
auth_throttle    Rate limit for wrong tokens.
callers          Identify the sender of an HTTP request.
people           The people of a gateway and their tokens.
signed_out       Sign-outs that survive a restart, in one small file.
signed_tokens    Signed cookies and one-time links.
token            The gateway's token.
unauthenticated  Limit for connections that have not authenticated yet.
"""
