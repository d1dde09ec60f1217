"""Messages between the ranks of a launch through plain sockets: no torch, no shared directory.

Rank 0 listens and every other rank connects to it. The port follows from the launch's token, with a
few alternatives, so that no number has to be agreed on; connections without the token are refused.
Messages are JSON, and only read as such.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import socket
import time
import zlib
from collections.abc import Sequence
from typing import Any

from pipeline.base.errors import PipelineError
from pipeline.diagnosis.checks import FAIL, WARN, Check, judge
from pipeline.diagnosis.own_rank import LaunchPlace

JOIN_SECONDS = 30.0
"""Limit for all ranks to start."""
ANSWER_SECONDS = 60.0
"""Limit for a rank to finish a part of its checks."""
_CANDIDATES = 8  # other programs, and other jobs of the node, hold some ports
_MOST_BYTES = 1 << 24  # a stranger's first bytes must not allocate gigabytes
_PINGS = 5  # the network only ever adds time, so the fastest is the truest
_WARN_OFFSET = 1.0
_FAIL_OFFSET = 60.0
"""Seconds between clocks; a lease that is this old counts as abandoned (run_directory/lease.py)."""


class LostRanks(PipelineError):
    """Ranks that did not start, or that ended during the checks."""


class Exchange:
    """The ranks, once they have met; with one rank, every call returns its own value."""

    def __init__(self, placement: LaunchPlace) -> None:
        """Meets the other ranks. Raises LostRanks if some do not come."""
        self.placement = placement
        self._peers: dict[int, socket.socket] = {}
        """The connection to each rank on rank 0, to rank 0 elsewhere."""
        if placement.world_size > 1:
            end = time.monotonic() + JOIN_SECONDS
            if placement.rank == 0:
                self._accept(end)
            else:
                self._peers[0] = self._connect(end)

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self._peers.values():
            peer.close()

    @property
    def address(self) -> str:
        """The local address of this rank's connection, i.e. of the network that it uses."""
        for peer in self._peers.values():
            return str(peer.getsockname()[0])
        return ""

    def gather(self, value: Any) -> list[Any]:
        """The value of every rank on rank 0; an empty list on the others."""
        if self.placement.rank:
            self._send(0, value)
            return []
        return [value, *(self._receive(rank) for rank in sorted(self._peers))]

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        if self.placement.rank:
            return self._receive(0)
        for rank in self._peers:
            self._send(rank, value)
        return value

    def barrier(self) -> None:
        """Returns once all ranks have called it."""
        self.gather(None)
        self.broadcast(None)

    def clock_offsets(self) -> list[float]:
        """Seconds that each rank's clock is ahead of rank 0's, on rank 0; the fastest of a few
        round trips counts."""
        if self.placement.rank:
            for _ in range(_PINGS):
                self._receive(0)
                self._send(0, time.time())
            return []
        offsets = [0.0]
        for rank in sorted(self._peers):
            trips = []
            for _ in range(_PINGS):
                # the wall clock may be set meanwhile, so the trip is timed by the monotonic one
                start, clock = time.monotonic(), time.time()
                self._send(rank, None)
                theirs = float(self._receive(rank))
                trip = time.monotonic() - start
                # their clock was read half-way, if both ways take equally long
                trips.append((trip, theirs - clock - trip / 2))
            offsets.append(min(trips)[1])
        return offsets

    def _accept(self, end: float) -> None:
        listener = self._listen()
        with listener:
            while len(self._peers) < self.placement.world_size - 1:
                listener.settimeout(max(0.01, end - time.monotonic()))  # 0 would not block at all
                try:
                    peer, _ = listener.accept()
                except TimeoutError:
                    expected = set(range(1, self.placement.world_size))
                    raise LostRanks(
                        f"{_name_ranks(expected - set(self._peers))} did not answer within "
                        f"{JOIN_SECONDS:.0f} s; look at the log for their errors, and check that "
                        f"their nodes reach {self.placement.address}"
                    ) from None
                self._admit(peer)

    def _admit(self, peer: socket.socket) -> None:
        """Keep a connection if it is one of our ranks."""
        peer.settimeout(2.0)  # a stranger that says nothing must not hold up the ranks
        try:
            token, rank = _read(peer)
            # in constant time, as the port is open to the whole network
            known = hmac.compare_digest(str(token), self.placement.token)
            if known and 0 < int(rank) < self.placement.world_size and rank not in self._peers:
                _write(peer, "welcome")
                _prepare(peer)
                self._peers[rank] = peer
                return
        except (OSError, ValueError, TypeError):
            pass
        peer.close()

    def _listen(self) -> socket.socket:
        for port in _ports(self.placement.token):
            # "" binds all interfaces, for a name that is not an address of this host
            for address in (self.placement.address, ""):
                listener = socket.socket()
                # the port of a doctor that has just ended is in TIME_WAIT
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    listener.bind((address, port))
                    listener.listen(1024)  # all ranks connect at once
                    return listener
                except OSError:
                    listener.close()
        raise LostRanks(
            f"no free port among {', '.join(map(str, _ports(self.placement.token)))} on "
            f"{socket.gethostname()}; widen TENFOLD_PORTS"
        )

    def _connect(self, end: float) -> socket.socket:
        reason = ""
        while time.monotonic() < end:
            for port in _ports(self.placement.token):
                try:
                    peer = socket.create_connection((self.placement.address, port), timeout=3)
                except OSError as error:
                    reason = str(error)
                    continue
                try:
                    peer.settimeout(5)
                    _write(peer, [self.placement.token, self.placement.rank])
                    if _read(peer) == "welcome":  # another program may listen there
                        _prepare(peer)
                        return peer
                except (OSError, ValueError):
                    pass
                peer.close()
            time.sleep(0.05)  # rank 0 may not have started
        raise LostRanks(
            f"rank {self.placement.rank} on {socket.gethostname()} cannot reach rank 0 at "
            f"{self.placement.address} ({reason}); check the network between the nodes, "
            "TENFOLD_PORTS and MASTER_ADDR"
        )

    def _send(self, rank: int, value: Any) -> None:
        try:
            _write(self._peers[rank], value)
        except OSError as error:
            raise self._lost(rank) from error

    def _receive(self, rank: int) -> Any:
        try:
            return _read(self._peers[rank])
        except (OSError, ValueError) as error:
            raise self._lost(rank) from error

    def _lost(self, rank: int) -> LostRanks:
        return LostRanks(
            f"rank {rank} ended, or did not answer for {ANSWER_SECONDS:.0f} s, during the checks; "
            "look at the log for its error"
        )


def _prepare(peer: socket.socket) -> None:
    peer.settimeout(ANSWER_SECONDS)
    # Nagle's algorithm would hold back small messages that are waited for
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _ports(token: str) -> list[int]:
    """Ports to try, in order: the same on every rank."""
    first, last = 20000, 31999  # Linux gives clients ports from 32768 on
    with contextlib.suppress(ValueError):
        low, high = map(int, os.environ.get("TENFOLD_PORTS", "").split("-"))
        if 0 < low <= high < 65536:
            first, last = low, high
    span = last - first + 1
    start = zlib.crc32(token.encode())  # not hash(), which differs between processes
    # 97 apart: one program may hold a range of neighbouring ports
    return list(dict.fromkeys(first + (start + 97 * i) % span for i in range(_CANDIDATES)))


def _write(peer: socket.socket, value: Any) -> None:
    content = json.dumps(value).encode()
    peer.sendall(len(content).to_bytes(4, "big") + content)


def _read(peer: socket.socket) -> Any:
    size = int.from_bytes(_exactly(peer, 4), "big")
    if size > _MOST_BYTES:
        raise ValueError(f"a message of {size:,} bytes")
    return json.loads(_exactly(peer, size))


def _exactly(peer: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        part = peer.recv(size - len(content))
        if not part:
            raise ConnectionResetError("the connection was closed")
        content += part
    return bytes(content)


def _name_ranks(ranks: set[int]) -> str:
    first = sorted(ranks)[:8]
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, first))}{more}"


def check_clocks(offsets: Sequence[float]) -> list[Check]:
    """Compare the ranks' clocks, as leases, logs and authentication do. Nothing for one rank.

    offsets: seconds ahead of rank 0's clock.
    """
    if len(offsets) < 2:
        return []
    rank = max(range(len(offsets)), key=lambda number: abs(offsets[number]))
    off = abs(offsets[rank])
    wrong = FAIL if off > _FAIL_OFFSET else WARN if off > _WARN_OFFSET else ""
    value = f"rank {rank} is {offsets[rank]:+.3f} s from rank 0"
    limit = _FAIL_OFFSET if wrong == FAIL else _WARN_OFFSET
    return [judge("clocks", value, wrong, f"within {limit:.0f} s", "synchronize them (NTP)")]
