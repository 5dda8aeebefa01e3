"""Reading and searching the web.

documents        Responses as text, and a cache for a few minutes
extractor        The start, limits and end of the extraction process
fetch            The `fetch` tool
html_extraction  The process that converts HTML to Markdown
provenance       Which URLs a conversation has named
search_services  SearXNG, Brave, Tavily and Exa
web_search       The `search` tool
web_settings     The configuration of both tools
web_tools        Both tools as a set that follows the configuration
"""
