"""The harness: what is compared, how it runs so that no kill changes anything, its measures."""
