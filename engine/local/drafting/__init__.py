"""Speculative decoding: who drafts tokens, how many are tried in a step, and which are accepted."""
