"""The socket that lanes connect to: bound and advertised as Spark is told for the driver's own ports."""

from __future__ import annotations

import errno
import socket

from pyspark import SparkConf, SparkContext

from evenflow.errors import InputError
from evenflow.spark.internals import is_local

DRIVER_PORT = "evenflow.driver.port"
_LOOPBACK = "127.0.0.1"
_RETRIES = 16  # Spark's default
_FIRST_PORT, _PORTS = 1024, 1 << 16
_BACKLOG = 1024  # lanes of a large cluster come at the same moment


def driver_socket(context: SparkContext, port: int = 0) -> tuple[socket.socket, tuple[str, int]]:
    """Return a listening socket, and the address at which executors reach it.

    With a port other than 0 the next ones are tried if it is taken, as often as `spark.port.maxRetries` says, as Spark
    does for its own. In local mode lanes run on this machine, and nobody else needs to reach the socket.
    """
    conf = context.getConf()
    if is_local(context):
        bind, advertised = _LOOPBACK, _LOOPBACK
    else:
        advertised = _bare(conf.get("spark.driver.host") or _LOOPBACK)
        bind = _bare(conf.get("spark.driver.bindAddress") or advertised)
    listener = _bound(bind, _ports(port, conf))
    return listener, (advertised, listener.getsockname()[1])


def port_of(text: str | None) -> int:
    """Return the port that an option names; None for any."""
    if text is None:
        return 0
    if not text.isdecimal() or not (int(text) == 0 or _FIRST_PORT <= int(text) < _PORTS):
        raise InputError(
            f"writeStream: {DRIVER_PORT} is a port from {_FIRST_PORT} to {_PORTS - 1}, or 0 for any, got {text!r}"
        )
    return int(text)


def _ports(first: int, conf: SparkConf) -> list[int]:
    """Return the ports to try; after the last one comes the first that needs no privilege, as in Spark."""
    if not first:
        return [0]
    retries = int(conf.get("spark.port.maxRetries") or _RETRIES)
    return [(first + offset - _FIRST_PORT) % (_PORTS - _FIRST_PORT) + _FIRST_PORT for offset in range(retries + 1)]


def _bound(host: str, ports: list[int]) -> socket.socket:
    for port in ports:
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise InputError(
                    f"the driver cannot listen for lanes at {host}, port {port}: {error}. Set spark.driver.bindAddress "
                    f"to an address of this machine (0.0.0.0 for all), and spark.driver.host to how executors reach it"
                ) from error
    raise InputError(
        f"the driver cannot listen for lanes at {host}: ports {ports[0]} to {ports[-1]} are all in use. Choose another "
        f"{DRIVER_PORT}, or raise spark.port.maxRetries"
    )


def _bare(host: str) -> str:
    """Return a host without the brackets in which Spark writes an IPv6 address."""
    return host.removeprefix("[").removesuffix("]")
