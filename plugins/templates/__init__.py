"""What `exuvia plugins new` writes: packages that provide one thing each, complete, with tests that inherit the kit's.

packages    a package from its texts, which lie beside this file and end in .txt; in them __NAME__ and the like are replaced
"""
