"""Words, stems and sentences of a text, in any script.

sentences        Sentences, and which of them say what was decided, wished or corrected.
spelling         The same word, written in several ways
stemming         What is known of languages
trivial_queries  What people say that asks for nothing
words            The words of a text, in every script, as the keyword index sees them and as a question is looked
                 up.
"""
