"""Where models are found by name, and how they are fetched and listed."""
