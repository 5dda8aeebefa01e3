"""The period of time that a question mentions ("in May 2023", "last week", "2023年5月"), and questions for a time. Pure."""

from __future__ import annotations

import re
from datetime import date, timedelta

import msgspec

_MONTHS = {
    name: number
    for names in (
        "january february march april may june july august september october november december",
        "jan feb mar apr - jun jul aug sep oct nov dec",
        "januar februar märz - mai juni juli - - oktober - dezember",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
        "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
        "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
        "январе феврале марте апреле мае июне июле августе сентябре октябре ноябре декабре",
    )
    for number, name in enumerate(names.split(), 1)
    if name != "-"
}
_ISO = re.compile(r"\b((?:19|20)\d\d)-(\d{1,2})(?:-(\d{1,2}))?\b")
_HAN = re.compile(
    r"(?=\d{1,4}\s{0,3}[年년月월日号일])"
    r"(?:((?:19|20)\d\d)\s{0,3}[年년]\s{0,3})?(?:(\d{1,2})\s{0,3}[月월])?(?:\s{0,3}(\d{1,2})\s{0,3}[日号일])?"
)
_WORD = re.compile(r"[^\W_]+")
_DAY = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?")
_YEAR = re.compile(r"(?:19|20)\d\d")
_IN = frozenset(("in", "of", "on", "since", "during", "until", "by", "early", "mid", "late", "last", "this"))
_OF = frozenset(("of", "de", "the", "del"))

_DAYS_AGO = {
    "today": 0,
    "heute": 0,
    "今天": 0,
    "今日": 0,
    "yesterday": 1,
    "gestern": 1,
    "hier": 1,
    "ayer": 1,
    "昨天": 1,
    "昨日": 1,
}
_NAMED_DAY = re.compile(r"\b(?:today|heute|yesterday|gestern|hier|ayer)\b|今天|今日|昨天|昨日")
_AGO = re.compile(r"\b(\d{1,3}|a|one|two|three|four|five|six)\s+(day|week|month|year)s?\s+ago\b")
_NUMBERS = {"a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_RELATIVE = re.compile(r"\b(last|this)\s+(week|month|year)\b|([上这這本])(?:个|個)?(周|週|月)|(去年)|(今年)")


_ASKS_WHEN = re.compile(
    r"^\W*(?:(?:since|until|till|by|from|and|but|so) )?when\b|\bwhen (?:did|do|does|was|were|is|are|will|has|have|had)\b"
    r"|\b(?:what|which) (?:day|date|time|week|weekend|month|year)\b|\bhow long\b"
    r"|\b(?:wann|wie lange|wie lang|an welchem tag|in welche[mr] (?:woche|monat|jahr)|quand|combien de temps|cuándo"
    r"|cuánto tiempo|quando|quanto tempo|когда|как давно|как долго)\b"
    r"|什么时候|什麼時候|何时|何時|几时|几号|几月|哪天|哪年|哪一[天年]|多久|いつ|何日|何月|何年|언제"
)
_TIMES = frozenset(
    _WORD.findall(
        """today tonight tomorrow yesterday ago last next since recently day days week weeks weekend month months year years
        monday tuesday wednesday thursday friday saturday sunday
        heute gestern vorgestern morgen übermorgen vor seit letzte letzten letzter letztes nächste nächsten nächster nächstes
        neulich kürzlich tag tage tagen woche wochen wochenende monat monate monaten jahr jahre jahren
        montag dienstag mittwoch donnerstag freitag samstag sonnabend sonntag
        aujourd hier demain avant dernier dernière prochain prochaine depuis récemment jour jours semaine semaines mois an
        ans année années lundi mardi mercredi jeudi vendredi samedi dimanche
        hoy ayer mañana anoche hace pasado pasada próximo próxima desde recientemente día días semana semanas mes meses año
        años lunes martes miércoles jueves viernes sábado domingo
        oggi ieri domani fa scorso scorsa prossimo prossima recentemente giorno giorni settimana settimane mese mesi anno
        anni lunedì martedì mercoledì giovedì venerdì sabato domenica
        hoje ontem amanhã atrás dia dias mês ano anos segunda terça quarta quinta sexta
        сегодня вчера завтра назад прошлый прошлой прошлом прошлую следующий следующей следующем недавно день дня дней неделя
        неделю недели недель месяц месяца месяцев год года лет понедельник вторник среду четверг пятницу субботу
        воскресенье"""
    )
) | (_MONTHS.keys() - {"may", "mai", "mar", "mars"})
_SPACES = "".join(chr(code) if chr(code).isalnum() else " " for code in range(128))
_DIGIT = re.compile(r"\d")
_CLOCK_OR_YEAR = re.compile(r"\b(?:19|20)\d\d\b|\b\d{1,2}(?::\d\d\b|\s?(?:am|pm|uhr|h)\b)", re.IGNORECASE)
_HAN_TIME = re.compile(
    r"[\d一二三四五六七八九十][年月日号點点時时년월일시]|[今昨明前后後][天日年]|[上下这這本]个?個?[周週月]|星期|礼拜|周[一二三四五六日末]|先週|来週|先月|来月|去年|来年|曜日"
    r"|오늘|어제|내일|지난|다음|요일"
)


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """A set of days: those with the given year, month and day of the month, between `first` and `last`."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    first: date = date.min
    last: date = date.max

    def has(self, day: date) -> bool:
        """Return True if the period contains a day."""
        named = ((self.year, day.year), (self.month, day.month), (self.day, day.day))
        return self.first <= day <= self.last and all(wanted in (None, there) for wanted, there in named)


def named_period(question: str, today: date) -> Period | None:
    """Return the period that a question mentions, relative to today if necessary; None for none.

    Of several, the first of the most specific kind.
    """
    if found := _ISO.search(question):
        return _period(found[1], found[2], found[3])
    for han in _HAN.finditer(question):
        if han[2] or (han[1] and "年" in han[0]):
            return _period(han[1], han[2], han[3])
    try:
        return _spelt(question) or _relative(question.casefold(), today) or _year(question)
    except OverflowError:  # before year 1
        return None


def asks_when(question: str) -> bool:
    """Return True if a question asks for a time."""
    return _ASKS_WHEN.search(question.casefold()) is not None


def mentions_time(text: str) -> bool:
    """Return True if a text contains a time, such as "yesterday", "in May", "two years ago" or a year."""
    folded = text.casefold()
    words = folded.translate(_SPACES).split() if text.isascii() else _WORD.findall(folded)  # the first is four times as fast
    if not _TIMES.isdisjoint(words) or (_DIGIT.search(text) and _CLOCK_OR_YEAR.search(text)):
        return True
    return not text.isascii() and _HAN_TIME.search(text) is not None


def _period(year: str | None, month: str | None, day: str | None) -> Period:
    return Period(year=int(year) if year else None, month=int(month) if month else None, day=int(day) if day else None)


def _spelt(question: str) -> Period | None:
    """Find a month's name, with the day before or after it and the year, if present."""
    words = _WORD.findall(question)
    for at, word in enumerate(words):
        if (month := _MONTHS.get(word.casefold())) is None:
            continue
        before = [each for each in words[max(0, at - 2) : at] if each.casefold() not in _OF]
        after = [each for each in words[at + 1 : at + 4] if each.casefold() not in _OF]
        day = next((found for each in before[-1:] + after[:1] if (found := _DAY.fullmatch(each))), None)
        year = next((each for each in after[:2] if _YEAR.fullmatch(each)), None)
        said = word[0].isupper() or word.casefold() in question.split()
        # "may" and "march" are also verbs: alone they are not months.
        sure = (
            day
            or year
            or (at and words[at - 1].casefold() in _IN)
            or word.casefold() not in ("may", "march", "mar", "mai", "mars")
        )
        if said and sure:
            return _period(year, str(month), day[1] if day else None)
    return None


def _relative(question: str, today: date) -> Period | None:
    if found := _NAMED_DAY.search(question):
        day = today - timedelta(days=_DAYS_AGO[found[0]])
        return Period(first=day, last=day)
    if found := _AGO.search(question):
        return _before(today, int(_NUMBERS.get(found[1]) or found[1]), found[2])
    found = _RELATIVE.search(question)
    if not found:
        return None
    unit = found[2] or {"周": "week", "週": "week", "月": "month"}.get(found[4] or "", "year")
    past = found[1] == "last" or found[3] == "上" or bool(found[5])
    return _before(today, 1 if past else 0, unit)


def _before(today: date, count: int, unit: str) -> Period:
    """Return the day, week, month or year that many units before today."""
    if unit == "day":
        return Period(first=today - timedelta(days=count), last=today - timedelta(days=count))
    if unit == "week":
        monday = today - timedelta(days=today.weekday() + 7 * count)
        return Period(first=monday, last=monday + timedelta(days=6))
    if unit == "year":
        return Period(year=today.year - count)
    months = today.year * 12 + today.month - 1 - count
    return Period(year=months // 12, month=months % 12 + 1)


def _year(question: str) -> Period | None:
    found = re.search(r"\b(?:in|of|since|during|en|im|год|году)?\s*((?:19|20)\d\d)\b", question.casefold())
    return Period(year=int(found[1])) if found else None
