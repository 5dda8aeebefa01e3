"""Google Gemini.

chat        The `gemini` chat provider
embeddings  The embedding provider `gemini`
errors      The errors of Google's Gemini API
reply       A reply: its stream, and its signatures in later requests
request     A context as the body of a request to Google's Gemini API
"""
