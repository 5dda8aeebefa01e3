"""What is known in few words: small facts beside the notes, on a log of their own that can explain each of them.

facts      everything that is asked of them and done to them; persons: as one person sees them
values     a fact, and what makes one acceptable
events     what happens to facts: the vocabulary of their log
lines      one of these events ⇄ one line of the log
book       all facts as they are now, and what happened to each; the fold of the log
writing    the one hand that writes the log
scoring    what they are worth now, which say the same; pure
recalling  which of them answer a message; choosing: which are worth a place behind it
upkeep     what has to leave: the old, the least important, what is there twice; pure
exchange   facts as one JSON document
extracting what a model is asked to find in a turn; turns: what was said in one
distilling how daily facts become few that stay
answers    the form of a model's answer, and what of an answer has it
tools      `write_memory`
settings   `[memory.facts]` of the configuration
errors     what can go wrong
"""
