"""Running code that nobody has read: the jail, its zygotes, the judge and the candidate."""
