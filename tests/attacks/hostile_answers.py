"""Answers of an origin that means harm, by what a proxy must do with them.

An answer of `BROKEN` must not reach the client as a whole: it gets an error of ours, or its connection is cut. One of
`HONEST_BUT_MORE` is passed on, and what follows it reaches nobody. ``STOLEN`` is what must never reach the next client.
"""

STOLEN = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nX-Stolen: 1\r\n\r\nSTOLEN"
OK = b"HTTP/1.1 200 OK\r\n"
C = OK + b"Transfer-Encoding: chunked\r\n\r\n"
FIVE = b"5\r\nhello\r\n0\r\n\r\n"

BROKEN = {
    # Framing (RFC 9112 section 6.3).
    "cl-te": OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + FIVE + STOLEN,
    "te-cl": OK + b"Transfer-Encoding: chunked\r\nContent-Length: 15\r\n\r\n" + FIVE + STOLEN,
    "cl-differing": OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + STOLEN,
    "cl-list": OK + b"Content-Length: 5, 6\r\n\r\nhello" + STOLEN,
    "cl-plus": OK + b"Content-Length: +5\r\n\r\nhello" + STOLEN,
    "cl-minus": OK + b"Content-Length: -5\r\n\r\nhello" + STOLEN,
    "cl-hex": OK + b"Content-Length: 0x5\r\n\r\nhello" + STOLEN,
    "cl-underscore": OK + b"Content-Length: 1_0\r\n\r\nhellohello" + STOLEN,
    "cl-empty": OK + b"Content-Length:\r\n\r\n" + STOLEN,
    "cl-huge": OK + b"Content-Length: 99999999999999999999999\r\n\r\nhello",
    "cl-short": OK + b"Content-Length: 50\r\n\r\nhello",
    "te-gzip": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + FIVE,
    "te-not-last": OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + FIVE + STOLEN,
    "te-twice": OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + FIVE,
    "te-unknown": OK + b"Transfer-Encoding: zebra\r\n\r\nhello",
    "te-vertical-tab": OK + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + FIVE + STOLEN,
    "te-http10": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + FIVE + STOLEN,
    # Lines.
    "bare-lf": b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
    "bare-cr": OK + b"A: b\rX-Smuggled: 1\r\nContent-Length: 5\r\n\r\nhello",
    "folded": OK + b"A: b\r\n c\r\nContent-Length: 5\r\n\r\nhello",
    "space-before-colon": OK + b"Content-Length : 5\r\n\r\nhello",
    "no-colon": OK + b"nonsense\r\nContent-Length: 5\r\n\r\nhello",
    "name-not-token": OK + b"A(b): c\r\nContent-Length: 5\r\n\r\nhello",
    "nul": OK + b"A: b\0c\r\nContent-Length: 5\r\n\r\nhello",
    # Status lines.
    "http-09": b"hello\r\n",
    "garbage": b"\x00\xff\x17garbage\r\n\r\n",
    "version-2": b"HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "status-word": b"HTTP/1.1 abc OK\r\nContent-Length: 5\r\n\r\nhello",
    "status-long": b"HTTP/1.1 2000 OK\r\nContent-Length: 5\r\n\r\nhello",
    "status-short": b"HTTP/1.1 20 OK\r\nContent-Length: 5\r\n\r\nhello",
    "status-negative": b"HTTP/1.1 -20 OK\r\nContent-Length: 5\r\n\r\nhello",
    "status-none": b"HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    "reason-cr": b"HTTP/1.1 200 O\rK\r\nContent-Length: 5\r\n\r\nhello",
    "nothing": b"",
    "half-a-head": OK + b"Content-Le",
    # Size.
    "head-huge": OK + b"A: " + b"b" * 2_000_000 + b"\r\nContent-Length: 5\r\n\r\nhello",
    "head-many": OK + b"A: b\r\n" * 20_000 + b"Content-Length: 5\r\n\r\nhello",
    "line-huge": b"HTTP/1.1 200 " + b"O" * 2_000_000 + b"\r\nContent-Length: 5\r\n\r\nhello",
    # Chunks.
    "chunk-size": C + b"Z\r\nhello\r\n0\r\n\r\n" + STOLEN,
    "chunk-plus": C + b"+5\r\nhello\r\n0\r\n\r\n" + STOLEN,
    "chunk-minus": C + b"-5\r\nhello\r\n0\r\n\r\n" + STOLEN,
    "chunk-0x": C + b"0x5\r\nhello\r\n0\r\n\r\n" + STOLEN,
    "chunk-overflow": C + b"10000000000000005\r\nhello\r\n0\r\n\r\n" + STOLEN,
    "chunk-no-crlf": C + b"5\r\nhelloX0\r\n\r\n" + STOLEN,
    "chunk-bare-lf": C + b"5\nhello\n0\n\n" + STOLEN,
    "chunk-ext-lf": C + b"5;a\nb\r\nhello\r\n0\r\n\r\n" + STOLEN,
    "chunk-ext-long": C + b"5;" + b"a" * 100_000 + b"\r\nhello\r\n0\r\n\r\n" + STOLEN,
    "chunk-cut": C + b"50\r\nhello",
    "chunk-no-end": C + b"5\r\nhello\r\n",
    # Informational answers.
    "informational-flood": b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" * 20_000,
    "continue-flood": b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000,
    "switch-unasked": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\n\r\n" + STOLEN,
    "informational-body": b"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nhello",
}  # fmt: skip

HONEST_BUT_MORE = {
    "two-answers": OK + b"Content-Length: 5\r\n\r\nhello" + STOLEN,
    "two-answers-chunked": C + FIVE + STOLEN,
    "garbage-after": OK + b"Content-Length: 5\r\n\r\nhello" + b"\r\n\r\ngarbage",
    "crlf-after": OK + b"Content-Length: 5\r\n\r\nhello\r\n",
    "head-of-a-second": OK + b"Content-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Le",
    "continue-then-answer": b"HTTP/1.1 100 Continue\r\n\r\n"
    + OK
    + b"Content-Length: 5\r\n\r\nhello",
    "hints-then-answer": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    + OK
    + b"Content-Length: 5\r\n\r\nhello"
    + STOLEN,
    "trailers": C + b"5\r\nhello\r\n0\r\nX-Smuggled: 1\r\n\r\n" + STOLEN,
    "informational-after": OK + b"Content-Length: 5\r\n\r\nhelloHTTP/1.1 103 Early Hints\r\n\r\n",
}

NO_BODY = {
    "no-content": (b"GET", b"HTTP/1.1 204 No Content\r\n\r\n" + STOLEN),
    "no-content-length": (
        b"GET",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 84\r\n\r\n" + STOLEN,
    ),
    "no-content-chunked": (
        b"GET",
        b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n" + FIVE + STOLEN,
    ),
    "not-modified": (b"GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 84\r\n\r\n" + STOLEN),
    "head-with-body": (b"HEAD", OK + b"Content-Length: 84\r\n\r\n" + STOLEN),
    "head-chunked": (b"HEAD", C + FIVE + STOLEN),
}
"""Method, and an answer that can't have a body, with one."""
