"""End-to-end encryption of the channel Matrix. Only the extra `matrix-e2e` brings what it requires.

cross_signing    The account's own keys, by which its device is verified.
encrypted_files  Files of encrypted rooms.
key_store        The keys, in a SQLite file.
olm_machine      Encrypting and decrypting, and the exchange of keys with other devices.
signatures       Signed JSON.
"""
