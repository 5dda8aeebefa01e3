"""What a message asks to be remembered, told by how it begins or ends, for models that have no tool to write it down.

Only plain orders count: `Remember that …`, not `Do you remember …?`. Pure.
"""

from __future__ import annotations

import re

# An order in each language, and in those that end with it, behind what is meant.
_BEGINS = re.compile(
    r"""(?ix) ^ \W* (?:
      (?: please\W+ )? (?: remember | (?: do \s not | don['’]?t ) \s forget | keep \s in \s mind | note | save \s this )
          (?: \s+ (?: that | this | the \s following ) \b \W* | \s* : \s* )
    | (?: bitte \s )? (?: merk | merke ) \s dir (?: \s bitte )? \W* (?: dass \b )? \W*
    | (?: bitte \s )? denk (?: e )? \s (?: bitte \s )? daran \W* dass \b
    | (?: souviens-toi | rappelle-toi | retiens | note | n'oublie \s pas ) \s+ (?: bien \s )? (?: que \b | qu['’] )
    | (?: recuerda | no \s olvides | anota ) \s+ que \b
    | (?: lembre-se | lembra-te | não \s esqueças? | anota ) \s+ (?: de \s+ )? que \b
    | (?: ricorda(?:ti)? | non \s dimenticare ) \s+ (?: di \s+ )? che \b
    | (?: пожалуйста \W+ )? (?: запомни(?:те)? | не \s забудь(?:те)? ) \s* (?: [,:]? \s* что \b | [:,] )
    | (?: تذكر | تذكّر | لا \s تنس ) \s+ (?: أن \b | أنّ \b | : | أني \b | أنني \b)
    | (?: 请 | 請 | 帮我 | 幫我 | 请帮我 | 請幫我 )? (?: 记住 | 記住 | 记下来? | 記下來? | 别忘了? | 別忘了? ) [，,：:\s]*
    ) \s* (?P<what> \S .* ) $""",
    re.DOTALL,
)
_ENDS = re.compile(
    r"""(?x) ^ \W* (?P<what> .*? \S ) (?:
      \s* (?: という\s?こと | こと | の )? を? \s* (?: 覚えて (?:おいて)? | 忘れないで ) (?: ください | 下さい | ね )?
    | (?: (?: 라는 | 다는 | 는 )? \s? (?: 것 | 걸 | 점 )? [을를]? \s* ) 기억해 \s? (?: 줘 | 주세요 | 둬 | 두세요 )?
    ) \W* $""",
    re.DOTALL,
)
_QUESTION = re.compile(r"[?？؟]\W*$")

LEAST = 3
"""Characters of what is worth remembering."""


def to_remember(message: str) -> str | None:
    """What a message asks to be remembered; None if it asks for something else."""
    if _QUESTION.search(message):
        return None
    found = _BEGINS.match(message) or _ENDS.match(message)
    what = found["what"].strip() if found else ""
    return what if len(what) >= LEAST else None
