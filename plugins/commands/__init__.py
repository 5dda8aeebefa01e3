"""What a person types after a slash. Each command is a class that knows nothing but the conversation it was typed in."""
