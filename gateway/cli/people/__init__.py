"""The commands about people: who they are, what they approved, and what they spent.

approvals        `exuvia approvals list|explain`
people_commands  `exuvia people`
usage_commands   `exuvia usage`
"""
