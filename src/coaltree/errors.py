"""Errors that this library raises, of one base class: `except CoaltreeError` catches them all.

Each is a ValueError or a TypeError too, as is usual in Python, and its message names the argument and the fix.
"""

from __future__ import annotations


class CoaltreeError(Exception):
    """Something that the caller gave cannot be used; the message says why and what to do."""


class InputError(CoaltreeError, ValueError):
    """A value that cannot be used."""


class InputTypeError(CoaltreeError, TypeError):
    """A value of a type that cannot be used."""


class TableError(InputError):
    """A table that cannot be used."""


class FolderError(InputError):
    """A folder or file that cannot be written."""
