"""Benchmarks: tasks, graders, metrics and results. It sees references, and no other room does."""
