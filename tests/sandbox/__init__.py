"""The sandbox, attacked at both levels, as root and as an ordinary user; without a sandbox the same attacks succeed."""
