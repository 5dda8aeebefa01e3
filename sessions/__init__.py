"""Sessions: durable, append-only logs of conversations, and the state that is folded from them.

attachments/  Files stored by content hash beside the journals.
catalog/      An index of sessions, checkpoints and receipts, which can be rebuilt from the journals.
events/       Events, messages and their encoding: the values that all other packages use.
files/        The file store: journals that are appended to, synced, repaired and verified.
state/        The state of a session, folded from its events: pure functions over immutable values.
store/        The protocols of a store, and the recorder that numbers, folds and encodes events.
"""
