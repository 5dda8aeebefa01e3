"""Sessions: durable, append-only logs of conversations, and the state that is folded from them.

attachments/  Files stored by content hash beside the journals.
catalog/      The catalog: an index of sessions, checkpoints and receipts, rebuilt from the logs.
events/       Events, messages and their encoding: the values that all other packages use.
files/        The file store: journals that are appended to, synced and repaired.
postgres/     The PostgreSQL store: the same lines as rows of a database.
state/        The state of a session, folded from its events: pure functions over immutable values.
store/        The protocols of a store, and what works with any store: writers, readers, forks, opening.
"""
