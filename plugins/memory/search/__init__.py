"""Search: candidates, fusion and ranking.

candidates       What is ranked, and by which rules
diagnostics      What is to be known about a search besides what it found, in sentences.
eval_metrics     How good a list of results is for a question whose answers are known.
fusion           The ways to put words and vectors together.
periods          The time that a question names
ranking          Which of the candidates answer best
search           One search of the memory
weighted_fusion  The fusion "measured"
"""
