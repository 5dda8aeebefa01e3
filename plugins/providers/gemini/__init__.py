"""Google Gemini.

chat        The `gemini` chat provider
embeddings  The embedding provider `gemini`
errors      What errors mean in Google's Gemini API, whether they come as a status or inside a stream.
request     A context as the body of a request to Google's Gemini API.
signatures  What Gemini signed in a reply, kept as the reply's `opaque`
stream      The stream of Google's Gemini API as a reply.
"""
