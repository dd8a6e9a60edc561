"""Privacy: methods that release something useful from private records, with a bill that an accountant can check."""
