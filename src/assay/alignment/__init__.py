"""Alignment: what preferences of people can teach a model, and whether it learned that."""
