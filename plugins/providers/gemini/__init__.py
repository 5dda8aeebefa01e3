"""Google Gemini.

chat        The `gemini` chat provider
embeddings  The embedding provider `gemini`
errors      The errors of Google's Gemini API
request     A context as the body of a request to Google's Gemini API
signatures  The signatures of a Gemini reply, kept in its `opaque`
stream      The stream of Google's Gemini API as a reply
"""
