"""The one outbound HTTP client, its connections and its streams.

client            The one outbound HTTP client of the house; only it and `doors`, the connections that it keeps,
                  know httpx.
connection_pools  The ways out of the house
sse               Server-sent events, as the HTML standard's section 9.2 has them
"""
