"""Backups of a home while its gateway runs, restoring them, and exports that verify themselves.

backup_folder   Incremental backups in a folder.
backup_stream   Backups as a tar archive, encrypted if wanted.
home_content    The logs and files of a home, in the order in which a backup reads them.
bundle          Exports of sessions that verify themselves.
known_backups   The list of backups that were written from a home.
ledger          Applies deletions to a restored home.
manifest        The list of what a backup holds.
restoring       Restores a home from a backup, and verifies backups.
verify_bundle   The program in a bundle that verifies it, without anything else of Exuvia.
"""
