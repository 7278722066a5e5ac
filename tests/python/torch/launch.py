"""Starts a script on several ranks. No rank is left behind: `timeout` ends them even if this process is killed."""

import os
import socket
import subprocess
import sys
import tempfile
import time


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def launch(script, ranks, arguments=(), seconds=600):
    """Runs `script` on `ranks` ranks. Returns (exit status, output) of each rank. A rank that runs for more than
    `seconds` seconds is ended, and its status is None."""
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=_free_port(), WORLD_SIZE=str(ranks),
                       OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    started = []
    try:
        for rank in range(ranks):
            output = tempfile.TemporaryFile("w+")
            command = ["timeout", "-k", "5", str(seconds + 5), sys.executable, script, *arguments]
            started.append((subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT,
                                             env=dict(environment, RANK=str(rank))), output))
        until = time.monotonic() + seconds
        return [_result(process, output, until) for process, output in started]
    finally:
        for process, output in started:
            process.terminate()
            process.wait()
            output.close()


def _result(process, output, until):
    try:
        status = process.wait(max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        status = None
    output.seek(0)
    return status, output.read()
