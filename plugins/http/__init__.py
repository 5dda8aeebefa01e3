"""The HTTP client for all outbound requests.

client            Requests with timeouts, limits and retries; streams of events and lines.
connection_pools  Connection pools by proxy and TLS, and the trusted certificates.
sse               Parsers for server-sent events and lines.
"""
