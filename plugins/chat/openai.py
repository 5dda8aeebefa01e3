
from plugins.contracts import *
class OpenAI:
    name="openai"; Settings=NoSettings
    def __init__(self,house): pass
    async def __aenter__(self): return self
    async def __aexit__(self,*a): pass
    def default_model(self): return None
    def why(self): return ""
    def limits(self,m): return ModelLimits()
    def stream(self,r): raise RuntimeError
