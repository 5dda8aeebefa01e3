"""The status of the whole gateway.

instruments  The instruments
last_hour    The last hour of the gateway
overview     The whole gateway at one moment, as `/status.json` gives it and `exuvia status` prints it.
problems     What is not well with the gateway as a whole, each in a sentence that says what it means or what to do.
"""
