"""The first hour with a phone: everything we believe of phones, asked of real ones, written into a file to send."""
