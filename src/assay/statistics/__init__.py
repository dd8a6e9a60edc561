"""Statistics: methods for tables of numbers."""
