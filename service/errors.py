"""What can go wrong and is not the caller's ordinary business; the docstring is the default message."""

from __future__ import annotations


class SchedulerError(Exception):
    """The scheduler could not do what was asked."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class InvalidUrl(SchedulerError):
    """Not a URL that can be crawled."""


class InvalidModel(SchedulerError):
    """These beliefs about a page contradict each other."""


class UnknownPage(SchedulerError):
    """No such page is registered."""


class InvalidSetting(SchedulerError):
    """A setting is out of its bounds."""


class StoreUnavailable(SchedulerError):
    """The store does not answer; try again shortly."""


class VersionMoved(SchedulerError):
    """Somebody else changed this since you read it."""
