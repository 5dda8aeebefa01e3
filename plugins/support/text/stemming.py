"""Stop words and stemmers of each language.

In most scripts the script says which stemmer is right, near enough; Latin ones are told apart by their stop words. English
is not stemmed here: the index does that (`porter` of FTS5). The stemmers are Snowball's (https://snowballstem.org).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from plugins.support.text.bounded_cache import bounded_cache
from plugins.support.text.spelling import alike, plain


def _set(words: str) -> frozenset[str]:
    return frozenset(spelling for word in alike(words).split() for spelling in (word, plain(word)))


_LATIN = {
    name: _set(words)
    for name, words in {
        "english": """a an the and or but if of in on at to for from by with about into over after before between out up
            down off as is are was were be been being am do does did doing done have has had having i you he she it we they
            me him her us them my your his its our their mine yours this that these those what which who whom whose when
            where why how than then so not no nor can could will would shall should may might must just there here any some
            all both each few more most other such own same too very s t d ll m re ve don also""",
        "german": """der die das den dem des ein eine einen einem einer eines und oder aber ist sind war waren wird werden
            wie was wer wen wem wo wann warum wieso welche welcher welches welchen welchem ich du er sie es wir ihr mich
            mir dich dir uns mein meine meinen dein deine sein seine unser unsere mit von vom zu zum zur im in am an auf aus
            bei beim bis für nach über unter um nicht kein keine auch nur noch hat haben hatte kann können muss müssen soll
            als wenn dass ins fürs""",
        "french": """le la les l un une des du de d et ou mais est sont était être a ai as ont avoir que qu qui quoi dont où
            quand comment pourquoi quel quelle quels quelles ce cet cette ces je j tu il elle on nous vous ils elles mon ma
            mes ton ta tes son sa ses notre votre leur dans sur sous pour par avec sans pas ne n se s au aux y en""",
        "spanish": """el la los las un una unos unas y o u pero es son era está están ser hay qué quién quiénes dónde cuándo
            cuánto cómo cuál cuáles que quien donde cuando como yo tú él ella nosotros mi mis tu tus su sus de en por para
            con sin no sí del al a ha he han se lo le nos me te este esta esto ese esa""",
        "portuguese": """o a os as um uma uns umas e ou mas é são era está estão ser há que quem onde quando quanto como
            qual quais eu você ele ela nós eles meu minha seu sua de do da dos das em no na nos nas por para pelo pela com
            sem não ao à aos se este esta isso esse essa""",
        "italian": """il lo la i gli le l un uno una e o ma è sono era essere ha ho hanno che chi cosa dove quando come
            perché quale quali quanto io tu lui lei noi voi loro mio mia suo sua di a da in con su per tra fra del della dei
            delle dello al alla ai nel nella sul sulla dal non si ci questo questa quello""",
        "dutch": """de het een en of maar is zijn was waren wordt worden ik jij hij zij wij jullie mijn jouw zijn haar onze
            ons wat wie waar wanneer waarom hoe welke welk dat die dit deze er in op aan van voor met naar bij uit over
            niet geen ook nog heeft hebben had kan moet als te om""",
        "swedish": """en ett den det de och eller men är var varit vara jag du han hon vi ni min mitt din sin vår vad vem
            var när varför hur vilken vilket vilka som att i på av för med till från om inte ingen har hade kan ska måste
            på så""",
        "danish": """en et den det de og eller men er var være jeg du han hun vi i min mit din sin vores hvad hvem hvor
            hvornår hvorfor hvordan hvilken hvilket som at på af for med til fra om ikke ingen har havde kan skal må""",
        "norwegian": """en et ei den det de og eller men er var være jeg du han hun vi dere min mitt din sin vår hva hvem
            hvor når hvorfor hvordan hvilken hvilket som at i på av for med til fra om ikke ingen har hadde kan skal må""",
        "finnish": """ja tai mutta on ovat oli olivat olla ei eivät minä sinä hän me te he minun sinun mikä mitä kuka missä
            milloin miksi miten mihin mistä kuinka että jos kun niin kuin tämä se nämä ne myös vain""",
        "hungarian": """a az egy és vagy de van vannak volt voltak nem ki mi mit hol mikor miért hogyan melyik hogy ha mint
            én te ő ez ezt azt is meg csak már még""",
        "polish": """i w we z ze na do od po za o u a ale lub albo jest są był była było być nie się to ten ta te tego co
            kto gdzie kiedy dlaczego jak jaki jaka który która które czy że dla przez przy mój moja ja ty on ona my""",
        "czech": """a i v ve z ze na do od po za o u k ale nebo je jsou byl byla bylo být ne se si to ten ta co kdo kde kdy
            proč jak jaký který která které že pro při můj moje já ty on ona my""",
        "romanian": """un o unei și sau dar este sunt era a fi are au ce cine unde când cum de ce care cât eu tu el ea noi
            meu mea în pe la din cu pentru prin nu se să al ale cel cea acest această""",
        "turkish": """bir ve veya ama ile için de da mi mı mu mü ne kim nerede nereye zaman neden nasıl hangi kaç ben sen o
            biz siz onlar benim senin bu şu var yok değil gibi daha çok en""",
        "indonesian": """yang dan atau tetapi di ke dari untuk dengan pada adalah ini itu apa siapa dimana mana kapan
            mengapa kenapa bagaimana berapa saya kamu dia kami kita mereka tidak bukan sudah akan ada""",
        "": """và hoặc nhưng là của cho với trong trên ở có không được gì ai đâu nào khi sao thế tôi bạn anh chị này đó các
            những một thì mà""",  # Vietnamese has no endings
    }.items()
}

_OTHERS = _set(
    """и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по ее мне где когда кто почему какой
    какая какие какое каком какую чем при из от до для о об ли это был была было были есть мы они мой моя мои сколько куда
    та і й що як де коли хто чому який яка яке які чи є це для від про та його її
    ما من في على إلى الى عن هل هو هي كان كانت هذا هذه ذلك التي الذي متى أين اين كيف لماذا كم أي اي مع أن ان لا لم قد و
    और का की के को में से पर है हैं था थी थे हो क्या कब कहाँ कौन कैसे क्यों किस कितने कितना यह वह ये वे मैं हम तुम आप मेरा
    मेरी ने भी तो ही नहीं एक या
    και το τα η ο οι του της των τον την με για από σε στο στη στην στις να είναι ήταν που πως πότε πού ποιος ποια τι δεν θα
    ποτε που
    של את על עם הוא היא זה זו מה מי מתי איפה למה איך כמה לא גם או אני אתה יש אין
    什么 怎么 哪里 什麼 怎麼 哪裡 谁的 的是 是什 么时 时候 是几 多少 吗
    です ます した して する ない こと もの どこ いつ だれ なに ですか すか のは
    언제 어디 누구 무엇 뭐야 어떻 떻게 무슨 에서 해야 하는 있어 있나 나요"""
)

_SCRIPTS = (
    (re.compile("[\u0400-\u052f]"), "russian"),
    (re.compile("[\u0600-\u06ff]"), "arabic"),
    (re.compile("[\u0900-\u097f]"), "hindi"),
    (re.compile("[\u0370-\u03ff\u1f00-\u1fff]"), "greek"),
    (re.compile("[\u0530-\u058f]"), "armenian"),
    (re.compile("[\u0b80-\u0bff]"), "tamil"),
)

SMALL_SIGNS = frozenset(
    "的了是在我你您他她它们們和与與就不没沒有也都很到说說要去会會着著过過被把给給让讓这這那哪什么麼怎吗嗎呢吧啊几幾多少谁誰何时時候里裡上下个個为為些之其所以而且"
)
"""Chinese characters that are stop words."""

ENGLISH = "english"

_SPOKEN: dict[str, tuple[str, ...]] = {
    word: tuple(name for name, words in _LATIN.items() if word in words) for word in frozenset().union(*_LATIN.values())
}


def language_of(words: Iterable[str]) -> str:
    """Return the language of Latin script with most of these lower-case words as stop words; English if there is none."""
    told: dict[str, int] = {}
    for word in words:
        for name in _SPOKEN.get(word, ()):
            told[name] = told.get(name, 0) + 1
    return max(told, key=lambda name: (told[name], name == ENGLISH), default=ENGLISH)


@lru_cache(len(_LATIN))
def idle(language: str) -> frozenset[str]:
    """Return the stop words of a language ("die" and "war" are none in English), with those of all other scripts."""
    return _LATIN[language] | _OTHERS


@bounded_cache(20_000)
def stem(word: str, language: str) -> str:
    """Return the stem of a lower-case word, by its script or else by the language of its text."""
    named = (name for script, name in _SCRIPTS if script.search(word))
    name = language if word.isascii() else next(named, language)
    if name in ("", ENGLISH):
        return word
    stemmed: str = _snowball(name)().stemWord(word)
    return stemmed or word


_STEMMERS = "_exuvia_snowball"

LONGEST_WORD = 128
"""Maximum characters of an indexed word; longer words are truncated."""


@bounded_cache(50_000)
def porter_stem(word: str) -> str:
    """Return the stem of a word by Porter's algorithm, as the keyword index of SQLite FTS5 does; a word longer than any
    indexed one is returned as it is."""
    if len(word) > LONGEST_WORD:
        return word
    stemmed: str = _snowball("porter")().stemWord(word.lower())
    return stemmed


@cache
def _snowball(name: str) -> Callable[[], Any]:
    """Return the class of a stemmer. Stemmers are stateful: one for each word is thread-safe.

    `snowballstemmer` imports the stemmers of all languages (15 ms, 3 MB). Its modules are imported one by one here, as
    members of a package with another name and the same folder.
    """
    if _STEMMERS not in sys.modules:
        spec = find_spec("snowballstemmer")
        assert spec is not None
        package = ModuleType(_STEMMERS)
        package.__path__ = spec.submodule_search_locations or []
        sys.modules[_STEMMERS] = package
    module = import_module(f"{_STEMMERS}.{name}_stemmer")
    stemmer: Callable[[], Any] = getattr(module, f"{name.title()}Stemmer")
    return stemmer
