"""Authentication: people, tokens, cookies, and which hosts and origins are admitted.

access           Who may speak
auth_throttle    Attempts with wrong tokens
callers          Callers
people           The people of a gateway
signed_out       Sign-outs that outlive a restart, in one small file.
signed_tokens    Passes
token            The gateway's token
unauthenticated  Connections over which nobody has said yet who they are
"""
