"""Errors of a request: an HTTP status and one sentence."""


class RequestError(Exception):
    """Ends a request with ``status``; its text says what is wrong and what to do."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
