#!/usr/bin/env python3
"""rude.py words|flood|mute|odd COMMAND… - runs the command with {port} in its arguments replaced by the port of a lock server
that breaks the protocol of the skeleton's server: it answers with unknown words (with bytes that no terminal should get),
or with a line that never ends, or not at all from the first renewal on, until there is another connection, or with half
of a hexadecimal number. Exits with the command's code."""
import socket
import subprocess
import sys
import threading


def answer(link):
    for line in link.makefile("rb"):
        number = line.split()[0]
        if number != b"HELLO":
            link.sendall(number + b" \x1b[31mNO" + b"x" * 4000 + b"\n")


def flood(link):
    while True:
        link.sendall(b"x" * 65536)


def mute(link, silent=[]):
    for line in link.makefile("rb"):
        number, verb = line.split()[:2]
        if verb == b"RENEW" and not silent:
            silent.append(link)  # kept open: the other end learns nothing
        if number.isdigit() and number != b"0" and link not in silent:
            link.sendall(number + b" OK 1\n")


def odd(link):
    for line in link.makefile("rb"):
        number, verb = line.split()[:2]
        if verb == b"INSPECT":
            link.sendall(number + b" OK 61 1 0 60000 6\n" + b"41" * 40 + b" OK\n")


def serve(listener, how):
    while True:
        link = listener.accept()[0]
        try:
            how(link)
        except OSError:
            pass  # it has hung up


listener = socket.create_server(("127.0.0.1", 0))
how = {"words": answer, "flood": flood, "mute": mute, "odd": odd}[sys.argv[1]]
threading.Thread(target=serve, args=(listener, how), daemon=True).start()
port = str(listener.getsockname()[1])
sys.exit(subprocess.run([word.replace("{port}", port) for word in sys.argv[2:]]).returncode)
