"""Engines: adapters to what extends branches. Importing this loads none of them."""
