"""The HTTP client for all outbound requests.

aiohttp_transport  httpx requests and responses on aiohttp's client.
client             Requests with timeouts, limits and retries; streams of events and lines.
connection_pools   Connection pools by proxy and TLS, and the trusted certificates.
multipart          Forms with a file, which is read while it is sent.
public_addresses   Resolving names to public addresses only, for requests that a model chose.
sse                Parsers for server-sent events and lines.
web_client         GET requests to web addresses that a model chose.
web_urls           Canonical form of web addresses.
"""
