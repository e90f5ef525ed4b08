"""Help for adapters of servers: start one, wait until it is ready, stream from it, stop it.

Everything an adapter needs so that its clock readings mean the same as any other's: the stream
reader stamps each network read before it parses anything.
"""

from inferometer.serving.connection import Clock, Endpoint
from inferometer.serving.http import (
    Arrival,
    EventStream,
    Reply,
    get_json,
    post_events,
    post_json,
)
from inferometer.serving.process import ServerProcess, free_port, port_in_use
from inferometer.serving.sse import Event, EventParser

__all__ = [
    "Arrival",
    "Clock",
    "Endpoint",
    "Event",
    "EventParser",
    "EventStream",
    "Reply",
    "ServerProcess",
    "free_port",
    "get_json",
    "port_in_use",
    "post_events",
    "post_json",
]
