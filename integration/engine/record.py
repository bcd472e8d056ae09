"""Writes what an engine publishes, one JSON object a line, read with the
engine's own libraries. usage: record.py tcp://host:port

Hashes are strings: they may exceed what a JSON number holds. After a restart of
the engine the socket connects again by itself."""

import json
import sys

import msgspec
import zmq
import zmq.utils.monitor as monitor


def name(block):
    return block.hex() if isinstance(block, bytes) else str(block)


def plain(event):
    event = dict(event)
    event["block_hashes"] = [name(b) for b in event.get("block_hashes", [])]
    parent = event.get("parent_block_hash")
    event["parent_block_hash"] = None if parent is None else name(parent)
    return event


def tell(line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


socket = zmq.Context.instance().socket(zmq.SUB)
socket.set_hwm(0)
socket.setsockopt(zmq.RECONNECT_IVL, 50)
socket.setsockopt(zmq.SUBSCRIBE, b"")
connected = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
socket.connect(sys.argv[1])
poller = zmq.Poller()
poller.register(socket, zmq.POLLIN)
poller.register(connected, zmq.POLLIN)
while True:
    ready = dict(poller.poll())
    if connected in ready:
        monitor.recv_monitor_message(connected)
        tell({"connected": True})
    if socket in ready:
        _, sequence, payload = socket.recv_multipart()
        batch = msgspec.msgpack.decode(payload)
        time, events = batch[:2] if isinstance(batch, list) else (batch["ts"], batch["events"])
        tell({"sequence": int.from_bytes(sequence, "big"), "time": time, "events": [plain(e) for e in events]})
