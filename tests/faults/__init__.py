"""Plausible mistakes, by the file in which each is planted; see tests/breaks.py.

Of each: what it would do to a user, the text that occurs once in the file, and what replaces it.
The tests of the file itself have to notice, or those that a fourth entry names.
"""
