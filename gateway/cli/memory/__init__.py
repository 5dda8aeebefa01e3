"""`exuvia memory`.

audit            `exuvia memory audit`
evaluation       `exuvia memory eval`
facts_commands   The work of `exuvia memory facts list|export|import|dedupe`
main_memory      The commands of `exuvia memory`
memory_commands  The work of `exuvia memory index|search|show|status`
question_sets    Files of questions with known answers
"""
