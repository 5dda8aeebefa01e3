"""The built-in chat commands.

approval_commands    `/approve`, `/deny` and `/approvals`
builtin              The built-in plugin, which registers them and all other built-in parts
compaction_commands  `/compact`, `/compactions` and `/revert`
conversation_commands  `/sessions`, `/title`, `/archive` and `/delete`
markdown             Escaping of untrusted text in Markdown
mcp_commands         `/mcp`
memory_commands      `/remember` and `/memory`; `/pin`, `/unpin`, `/edit`, `/forget`, `/clear`, `/distill` and `/why`
pairing_commands     `/pair`
schedule_commands    `/remind` and `/schedule`
session_commands     `/new` and its alias `/reset`, `/stop`, `/undo`, `/jobs`, and the settings, such as `/model`
skill_commands       `/skills`
status_commands      `/help`, `/status`, `/whoami`, `/usage`, `/history` and `/context`
"""
