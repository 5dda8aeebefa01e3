"""Search: candidates, fusion and ranking.

candidates       Search candidates and ranking rules
diagnostics      Sentences about the limitations of a search
eval_metrics     Recall, nDCG and reciprocal rank
fusion           Fusion of keyword and vector scores
periods          The period of time that a question mentions
ranking          Fusion, temporal decay and diversity
related_words    English words that mean nearly the same
relevance        Results that answer the question
search           One search of the memory
weighted_fusion  The fusion "measured"
"""
