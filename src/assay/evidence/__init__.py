"""What the project is about: claims as code."""
