"""Attacks from outside on a gateway that was left to defend itself."""
