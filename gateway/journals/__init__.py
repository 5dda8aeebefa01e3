"""Read-only access to the stored sessions, for the command line and the console.

past_requests   Past requests of a session, rebuilt from its log.
session_lookup  Listing sessions, finding one by id or key, and its entries for display.
"""
