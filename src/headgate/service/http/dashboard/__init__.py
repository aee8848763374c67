"""The dashboard: a page, its style and its scripts, as files that are served as they are."""

from headgate.service.http.dashboard.files import NAMES, PREFIX, file_reply, page_reply

__all__ = ["NAMES", "PREFIX", "file_reply", "page_reply"]
