"""The Responses API below `/v1/responses`.

endpoint            Creates and returns responses, in a session or without one.
request_conversion  Converts a request's items to the messages that any provider takes.
response_object     Builds the response object and the events of its stream.
response_schema     The schema of a request, after OpenAI's API reference.
stored_responses    The responses that are stored without a session, in a log of their own.
"""
