"""The client of the Model Context Protocol: tools of servers that are programs or addresses.

Of these modules a gateway without a configured server imports only `mcp_client` and `mcp_settings`.

chat_logins      Logins that begin in a chat.
connection       The connection to one server, kept up by one task.
definitions      Names, descriptions and schemas as they are offered, and their digests.
elicitation      Questions of servers, asked as approvals.
http_transport   The HTTP client, with bounds and a guard on addresses.
mcp_client       The client as the gateway holds it.
mcp_servers      All configured servers, as one source of tools.
mcp_settings     The keys of `[mcp.NAME]`.
oauth            Logins.
persons_servers  The servers as one person may see them.
results          What servers return, as outputs of tools.
sandboxed_transport  The same, in the sandbox of commands.
stdio_transport  Messages over the standard streams of a program.
tool_selection   The tools that are offered, `find_tools`, and resources.
supervisor       A program that runs a server, and ends it with the gateway.
"""
