"""Detection of requests to remember something, by the beginning or end of a message, for models without tools.

Only direct requests count: `Remember that …` and `…. Save this for later.`, not `Do you remember …?`. Pure.
"""

from __future__ import annotations

import re

# Requests at the beginning of a message; in some languages they come last.
_AT_START = re.compile(
    r"""(?ix) \W*+ (?:
      (?: please\W++ | (?: can | could | would | will ) \s you \s (?: please \s )? )?
          (?: remember | note | save | keep | store ) (?: \s (?: this | that | it | the \s following ))?
          \s for \s later \b \W*+
    | (?: bitte \s )? (?: merke? \s dir | speichere? | hebe? ) \s das \s (?: bitte \s )? für \s später (?: \s auf )? \b \W*+
    | (?: garde | retiens ) \s (?: ça | cela ) \s pour \s plus \s tard \b \W*+
    | guarda \s (?: esto | eso ) \s para \s (?: más \s tarde | después | luego ) \b \W*+
    | (?: please\W++ )? (?: remember | (?: do \s not | don['’]?t ) \s forget | keep \s in \s mind | note | save \s this )
          (?: \s++ (?: that | this | the \s following ) \b \W*+ | \s*+ : )
    | (?: bitte \s )? (?: merk | merke ) \s dir (?: \s bitte )? \W*+ (?: dass \b )? \W*+
    | (?: bitte \s )? denk (?: e )? \s (?: bitte \s )? daran \W*+ dass \b
    | (?: souviens-toi | rappelle-toi | retiens | note | n'oublie \s pas ) \s++ (?: bien \s )? (?: que \b | qu['’] )
    | (?: recuerda | no \s olvides | anota ) \s++ que \b
    | (?: lembre-se | lembra-te | não \s esqueças? | anota ) \s++ (?: de \s++ )? que \b
    | (?: ricorda(?:ti)? | non \s dimenticare ) \s++ (?: di \s++ )? che \b
    | (?: пожалуйста \W++ )? (?: запомни(?:те)? | не \s забудь(?:те)? ) \s*+ (?: (?: [,:] \s*+ )? что \b | [:,] )
    | (?: تذكر | تذكّر | لا \s تنس ) \s++ (?: أن \b | أنّ \b | : | أني \b | أنني \b)
    | (?: 请 | 請 | 帮我 | 幫我 | 请帮我 | 請幫我 )? (?: 记住 | 記住 | 记下来? | 記下來? | 别忘了? | 別忘了? ) [，,：:\s]*+
    )"""
)
_AT_END = re.compile(
    r"""(?x) (?:
      (?: という\s?こと | こと | の )? を? \s{0,3} (?: 覚えて (?:おいて)? | 忘れないで ) (?: ください | 下さい | ね )?
    | (?: (?: 라는 | 다는 | 는 )? \s? (?: 것 | 걸 | 점 )? [을를]? \s{0,3} ) 기억해 \s? (?: 줘 | 주세요 | 둬 | 두세요 )?
    ) \W*+ $"""
)
# Requests at the end, in a separate sentence or clause.
_AFTER_SENTENCE = re.compile(
    r"""(?ix) (?: (?<= [.!…)”"\n。！] ) | [,;:，；：] | \s [–—-] ) \s{0,9}+ (?:
      (?: (?: please | and | so | now | okay | ok | just ) \W++ ){0,3} (?:
          (?: remember | (?: do \s not | don['’]?t ) \s forget ) \s (?: this | that | it ) (?: \s for \s later )?
        | (?: save | keep | store ) \s (?: this | that | it ) \s for \s later
        | keep \s (?: this | that | it ) \s in \s mind ) (?: \W++ please )?
    | (?: bitte \s )? merke? \s dir \s das (?: \s bitte )? (?: \s für \s später )?
    | (?: bitte \s )? (?: hebe? | speichere? ) \s das \s (?: bitte \s )? für \s später (?: \s auf )?
    | retiens (?: -le | -la | \s ça | \s cela ) | (?: garde | retiens ) \s (?: ça | cela ) \s pour \s plus \s tard
    | recuérdalo | recuerda \s esto | guarda \s (?: esto | eso ) \s para \s (?: más \s tarde | después | luego )
    | (?: 请 | 請 | 帮我 | 请帮我 )? (?: 记住 | 記住 | 记下 | 別忘了 | 别忘了 ) (?: 这个 | 這個 | 这一点 | 这件事 | 这些 )?
    ) \W*+ $"""
)
_TAIL = 120
"""Characters searched at the end of a message: the longest request there with its surroundings."""
_QUESTION = re.compile(r"[?？؟][^\w?？؟]*+$")
_PUNCTUATION = re.compile(r"\W*+")

SHORTEST = 3
"""Minimum characters of what is worth remembering."""


def text_to_remember(message: str) -> str | None:
    """Return what a message asks to remember, None if it is not such a request."""
    message = message.rstrip()
    tail = max(0, len(message) - _TAIL)
    if _QUESTION.search(message, tail):
        return None
    if (found := _AT_START.match(message)) and (after := message[found.end() :].strip()):
        what = after
    elif found := _AT_END.search(message, tail):
        what = _PUNCTUATION.sub("", message[: found.start()], count=1).strip()
    elif found := _AFTER_SENTENCE.search(message, tail):
        what = message[: found.start()].strip()
    else:
        return None
    return what if len(what) >= SHORTEST and not _QUESTION.search(what, max(0, len(what) - _TAIL)) else None
