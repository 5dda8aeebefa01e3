"""What a model left out of its summary is added by hand: what was asked last, and identifiers with what was said of them.

Pure; nothing is added that was not said.
"""

from __future__ import annotations

from plugins.context.fencing import harmless
from plugins.context.mentions import Mention, mentions
from plugins.context.page import Page
from plugins.context.said import said
from plugins.context.sections import GOALS, IDENTIFIERS, parsed, written
from plugins.context.sentences import clipped, one_line
from plugins.context.summary_checks import Checked
from plugins.summaries import Leaving

ASK = 400
"""Characters of a person's last message that are added."""


def completed(summary: str, leaving: Leaving, checked: Checked) -> str:
    """The summary in its form, with what `checked` found missing. Under a strict policy it is filled up with the identifiers
    that it does not name, first those that were demanded, then those that matter most."""
    sections = parsed(summary)
    if checked.unasked:
        _add(sections, GOALS, f"- Asked last: {clipped(one_line(harmless(checked.unasked[: 2 * ASK])), ASK)}")
    if leaving.identifier_policy == "strict":
        _add(sections, IDENTIFIERS, _names(written(sections), leaving, checked))
    return written(sections)


def _names(summary: str, leaving: Leaving, checked: Checked) -> str:
    page = Page(leaving.limit)
    page.hold(summary)
    found = {mention.name: mention for mention in mentions(said(leaving))}
    demanded = [found.pop(name, Mention(name=name, score=0, sentence="")) for name in checked.missing]
    page.name([*demanded, *found.values()], (), 0)
    return page.listed(IDENTIFIERS)


def _add(sections: dict[str, str], name: str, lines: str) -> None:
    sections[name] = "\n".join(filter(None, [sections.get(name, ""), lines]))
