"""Detection of greetings, thanks and assent, for which nothing is recalled."""

from __future__ import annotations

import re

LONGEST = 60
"""Maximum characters of such a message."""

_SPACED = """
    hi hello hey hiya yo good morning afternoon evening night day welcome bye goodbye see you later soon there how are is it
    going doing thanks thank thx ty so very much a lot you too please ok okay k kk alright right sure fine great nice
    cool perfect excellent wonderful awesome yes yeah yep yup no nope not really go on continue proceed next again and then
    more done stop wait well hm hmm aha oh ah wow lol haha i see got it understood agreed same to everyone all m what s up
    hallo guten morgen tag abend nacht gute moin servus grüß dich gott wie geht es dir danke schön sehr vielen dank bitte
    ja nein gut super prima weiter mach genau alles klar tschüss bis später bald
    salut bonjour bonsoir bonne nuit coucou ça va merci beaucoup bien oui non d accord continue continuez au revoir à
    bientôt hola buenos días buenas tardes noches gracias muchas vale sí bueno sigue adelante adiós hasta luego qué tal
    olá oi bom dia boa tarde noite obrigado obrigada sim não tchau ciao buongiorno buonasera grazie mille sì bene avanti
    привет здравствуй здравствуйте добрый день утро вечер доброе спасибо большое да нет хорошо ладно дальше пока как дела
    مرحبا السلام عليكم أهلا صباح الخير مساء شكرا جزيلا نعم لا حسنا تمام"""
_UNSPACED = """
    你好 您好 早上好 晚上好 下午好 早安 晚安 谢谢 谢谢你 谢谢您 多谢 好的 好 好吧 嗯 是 是的 不 不是 对 对的 继续 请继续
    再见 明白 明白了 知道了 可以 行 哈哈 こんにちは こんばんは おはよう おはようございます ありがとう
    ありがとうございます はい いいえ うん わかりました 了解 了解です 続けて さようなら おやすみ
    안녕 안녕하세요 감사합니다 고마워 고마워요 네 예 아니요 아니 좋아 좋아요 계속 알겠습니다 잘자"""
_SMALL = frozenset(_SPACED.split() + _UNSPACED.split())
_WORD = re.compile(r"[^\W_]+")


def is_small_talk(text: str) -> bool:
    """Return True if a message consists only of such words, or has no words."""
    return len(text) <= LONGEST and _SMALL.issuperset(_WORD.findall(text.casefold()))
