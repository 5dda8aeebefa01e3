"""Backups of a home while its gateway runs, and restoring them.

backup_folder   Incremental backups in a folder.
backup_stream   Backups as a tar archive, encrypted if wanted.
home_content    The logs and files of a home, in the order in which a backup reads them.
known_backups   The list of backups that were written from a home.
ledger          Applies deletions to a restored home.
manifest        The list of what a backup holds.
restoring       Restores a home from a backup, and verifies backups.
"""
