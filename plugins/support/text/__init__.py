"""Words, stems and sentences of a text, in any script.

bounded_cache    A cache for functions of short texts, with bounded memory.
invisible        Characters that are not seen, written out.
nesting          Lists in which what belongs to an entry stands below it.
sentences        Splitting a text into sentences, and recognising decisions, wishes and corrections.
spelling         Normalisation of spelling variants: width, accents, vowel signs.
stemming         Question words and stemmers of each language.
trivial_queries  Detection of greetings, thanks and assent, for which nothing is recalled.
words            Tokenisation for the keyword index and for queries.
"""
