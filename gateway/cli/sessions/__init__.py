"""`exuvia sessions`, `agents`, `route`, `schedule`, `store`, `import`, `backup` and `restore`.

agent_commands     `exuvia agents list` and `exuvia route explain`
backup_commands    `exuvia backup` and `exuvia restore`
bundle_commands    `exuvia sessions export --bundle` and `exuvia sessions import`
erase_commands     `exuvia erase`
import_command     `exuvia import`, through the running gateway or in the files
main_backup        `exuvia backup`, `exuvia restore` and `exuvia erase` as click commands
schedule_commands  The commands about schedules, which ask the running gateway
session_changes    The commands that change conversations, in the running gateway or in the files
session_commands   The commands that read journals, and `forget`
store_commands     `exuvia store`
"""
