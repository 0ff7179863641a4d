"""A process that holds one runtime with one model, so that runtimes share neither threads nor
memory and one that crashes takes nobody with it.

The parent side is `Worker`; `python -m bench.worker PEER FD` is the other. They exchange pickled
messages over a pair of sockets: (command, argument) one way, (outcome, value) the other.

Between its turns a worker is stopped, so that threads that spin for work do not take the
processor from the others.
"""

import contextlib
import ctypes
import importlib
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import time

from bench.peers import Refused

PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


class Worker:
    def __init__(self, peer, threads, cache, log):
        """`cache`: a folder for what is compiled; `log`: an open file for what is printed."""
        self.connection, other = multiprocessing.Pipe()
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS")
        settings = {name: str(threads) for name in names}
        settings["TORCHINDUCTOR_CACHE_DIR"] = str(cache / "inductor")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.worker", peer, str(other.fileno())],
            pass_fds=[other.fileno()],
            env=os.environ | settings,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # an interrupt ends it through the parent
        )
        other.close()
        self.stopped = False

    def ask(self, command, argument, timeout):
        """Sends a command and waits for its answer; after an exception only `close` is left."""
        if self.stopped:
            self.process.send_signal(signal.SIGCONT)
        try:
            self.connection.send((command, argument))
            if not self.connection.poll(timeout):
                raise Refused(f"{command}: more than {timeout} s")
            outcome, value = self.connection.recv()
        except (EOFError, OSError):
            status = self.process.wait()
            what = f"signal {-status}" if status < 0 else f"exit code {status}"
            raise Refused(f"{command}: ended with {what}") from None
        self.process.send_signal(signal.SIGSTOP)
        self.stopped = True
        if outcome == "refused":
            raise Refused(value)
        return value

    def close(self):
        if self.connection.closed:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # compilers that it started too
        self.process.wait()
        self.connection.close()


def burst(session, seconds):
    """Runs for about `seconds`, at least once; the seconds of each run."""
    times = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        session.run()
        times.append(time.perf_counter() - start)
    return times


def serve(peer, connection):
    session = None
    while True:
        command, argument = connection.recv()
        try:
            if command == "load":
                session = importlib.import_module("bench.peers." + peer).load(argument)
                value = session.ran
            elif command == "outputs":
                session.run()
                value = session.outputs()
            else:
                value = burst(session, argument)
            connection.send(("done", value))
        except Exception as error:  # each runtime has classes of its own
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            name = "" if isinstance(error, Refused) else type(error).__name__ + ": "
            print(error, file=sys.stderr, flush=True)
            connection.send(("refused", name + " ".join(lines)[:300]))


def main():
    # Whatever ends the parent ends this process too, even while it is stopped.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    connection = multiprocessing.connection.Connection(int(sys.argv[2]))
    try:
        serve(sys.argv[1], connection)
    except EOFError:
        pass  # the parent is gone


if __name__ == "__main__":
    main()
