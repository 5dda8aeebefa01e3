"""`exuvia memory`.

audit            `exuvia memory audit`
eval_questions   Questions with the notes that answer them, as `exuvia memory eval` reads them
evaluation       `exuvia memory eval`
facts            `exuvia memory facts` on the command line.
facts_commands   `exuvia memory facts list|export|import|dedupe`
main_memory      `exuvia memory` on the command line.
memory_commands  `exuvia memory index|search`
memory_status    `exuvia memory status`
"""
