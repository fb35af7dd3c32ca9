"""Trapline from Python: a context manager on the stub library (make -C guest-lib).

    with trapline.trace("parse"):
        parse(text)

TRAPLINE_STUB names the library; else libtrapline.so beside this file, in ../build, or where the loader finds it.
"""

import contextlib
import ctypes
import os

START, STOP, ROI_BEGIN, ROI_END, MARK, LOG = 0x10, 0x11, 0x14, 0x15, 0x22, 0x23
SCOPE_DEFAULT, SCOPE_VCPU, SCOPE_PROCESS, SCOPE_ALL = range(4)


def _load():
    here = os.path.dirname(os.path.abspath(__file__))
    places = [os.environ.get("TRAPLINE_STUB"), os.path.join(here, "libtrapline.so"),
              os.path.join(here, "..", "build", "libtrapline.so"), "libtrapline.so"]
    for place in filter(None, places):
        try:
            library = ctypes.CDLL(place)
        except OSError:
            continue
        library.trapline_stub_version.restype = ctypes.c_uint32
        library.trapline_stub_call.restype = ctypes.c_int64
        library.trapline_stub_call.argtypes = [ctypes.c_uint32] + [ctypes.c_uint64] * 6
        return library
    raise OSError("libtrapline.so is not there: make -C guest-lib, or set TRAPLINE_STUB")


_library = _load()


def present():
    """Whether this runs under Trapline."""
    return _library.trapline_stub_version() >> 16 == 1


def call(op, *args):
    """Any operation; at least 0, or a negative errno. Texts (bytes) are passed by their address."""
    words = [ctypes.cast(ctypes.c_char_p(a), ctypes.c_void_p).value or 0 if isinstance(a, bytes) else a for a in args]
    return _library.trapline_stub_call(op, *(words + [0] * (6 - len(words))))


def mark(name, value=0):
    """A marker."""
    return call(MARK, name.encode() + b"\0", value)


def log(text, level=0):
    """A line of text."""
    data = text.encode()
    return call(LOG, data, len(data), level)


@contextlib.contextmanager
def trace(region=None, scope=SCOPE_DEFAULT):
    """Traces what is in the block, as a region of interest if it has a name."""
    name = region.encode() + b"\0" if region else None
    if name:
        call(ROI_BEGIN, 1, name)
    call(START, scope)
    try:
        yield
    finally:
        call(STOP, scope)
        if name:
            call(ROI_END, 1, name)


if __name__ == "__main__":
    print("Trapline answers" if present() else "nobody answers")
    with trace("sum"):
        total = sum(range(100))
    mark("total", total)
    print(total)
