"""Exceptions and warnings."""

import errno


class Error(OSError):
    """Base of all errors of this package.

    ``problem`` says what failed, with expected and found values; ``place`` is the file, the volume or the path in it;
    ``next_step`` says what to do, and may be empty.
    """

    _errno = errno.EIO

    def __init__(self, problem: str, place: str = "", next_step: str = "") -> None:
        super().__init__(self._errno, problem)
        self.problem = problem
        self.place = place
        self.next_step = next_step

    def __str__(self) -> str:
        text = f"{self.place}: {self.problem}" if self.place else self.problem
        return f"{text}; {self.next_step}" if self.next_step else text

    def __reduce__(self):
        return type(self), (self.problem, self.place, self.next_step)


class OpenError(Error):
    """The dump can't be opened or read."""


class NotFlashError(Error):
    """The dump holds no UBI and no UBIFS."""

    _errno = errno.EINVAL


class DamageError(Error):
    """Something on the medium is damaged."""


class ArgumentError(Error, ValueError):
    """A wrong argument."""

    _errno = errno.EINVAL


class NotFoundError(Error, FileNotFoundError):
    """The file system has no such path."""

    _errno = errno.ENOENT


class NotDirectoryError(NotFoundError, NotADirectoryError):
    """A path leads through a file as if it were a directory."""

    _errno = errno.ENOTDIR


class KindError(Error):
    """The path leads to a file of another kind than the operation needs."""

    _errno = errno.EINVAL


class CommandError(Error):
    """The command ``tidegate`` is missing or failed."""


class InternalError(Error):
    """A defect of tidegate."""


class LossWarning(UserWarning):
    """Content is missing; the attribute ``losses`` of the file system or volume has all of it."""
