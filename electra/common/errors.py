"""Errors shown to the user; each class has its exit code.

Every error says in a few lines what happened, where, and what to do next. The CLI prints only the message. Any other
exception is a bug in this project and is printed with its traceback.
"""

from electra.common.printing import printable, shortened

LONGEST = 4_000  # characters per line of a message, which may quote a file's content
LONGEST_REPORT = 40_000  # characters of a message of many lines, such as all failed checks of a suite


class ElectraError(Exception):
    """Base of all expected failures.

    Args:
        what: what happened, one sentence.
        where: the file, line or configuration key it happened at.
        next_step: what the user can do about it.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, next_step: str | None = None):
        self.what, self.where, self.next_step = what, where, next_step
        lines = [shortened("\n".join(shortened(line, LONGEST) for line in what.split("\n")), LONGEST_REPORT)]
        if where:
            lines.append(f"  where: {shortened(where, LONGEST)}")
        if next_step:
            lines.append(f"  next:  {shortened(next_step, LONGEST)}")
        super().__init__(printable("\n".join(lines)))


class ConfigError(ElectraError):
    """A wrong command line or configuration."""

    exit_code = 2


class DataError(ElectraError):
    """Data that cannot be used: unreadable, malformed, or rejected by a validation suite."""

    exit_code = 3


class TrainingError(ElectraError):
    """Training diverged or collapsed."""

    exit_code = 4


class InfrastructureError(ElectraError):
    """A failure of disk, memory, network, locks or processes: the same command may succeed later."""

    exit_code = 5
