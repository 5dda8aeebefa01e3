"""`exuvia memory`.

audit            `exuvia memory audit`
eval_questions   The file of questions for `exuvia memory eval`
evaluation       `exuvia memory eval`
facts            The commands of `exuvia memory facts`
facts_commands   The work of `exuvia memory facts list|export|import|dedupe`
main_memory      The commands of `exuvia memory`
memory_commands  The work of `exuvia memory index|search`
memory_status    The work of `exuvia memory status`
"""
