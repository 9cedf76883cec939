"""Configuration: declared fields, rules for their values, dtype policies and the JSON form."""
