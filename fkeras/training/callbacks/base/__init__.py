"""The class `Callback`, and helpers that several callbacks share."""
