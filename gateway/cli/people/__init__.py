"""The commands about people: what they approved, and what they spent.

approvals        `exuvia approvals list|explain`
usage_commands   `exuvia usage`
"""
