"""Guards of the promises, broken one at a time, to see that a test fails without each of them.

`guards.toml` lists them: a file, the text of the guard, the text that breaks it, and the tests that are meant for it.
`make mutants` breaks each in a copy of the tree, runs its tests, and names those that survive.
"""
