"""The protocols of a store, and the recorder that numbers, folds and encodes events.

protocols  The protocols of what keeps the lines
recorder   The recorder
"""
