"""The Snug server, started from Python: for tests, and for programs that need one."""

from ._server import Server, ServerError, program
from ._version import __version__

__all__ = ["Server", "ServerError", "__version__", "program"]
