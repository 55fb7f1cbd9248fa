"""A study as one HTML file: everything in it is made here, and it asks nobody for anything."""
