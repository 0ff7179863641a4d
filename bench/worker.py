"""A process that holds one runtime with one model, so that runtimes share neither threads nor
memory and one that crashes takes nobody with it.

The parent side is `Worker`; `python -m bench.worker PEER FD` is the other. They exchange pickled
messages over a pair of sockets: (command, argument) one way, (outcome, value) the other.

Between its turns a worker is stopped, so that threads that spin for work do not take the
processor from the others.
"""

import importlib
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import time

from bench.peers import Refused


class Worker:
    def __init__(self, peer, threads, log):
        """`log`: an open file for what the runtime prints."""
        self.connection, other = multiprocessing.Pipe()
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.worker", peer, str(other.fileno())],
            pass_fds=[other.fileno()],
            env=os.environ | {name: str(threads) for name in names},
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
        self.process.kill()
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
                session.run()
                value = session.outputs(), session.ran
            else:
                value = burst(session, argument)
            connection.send(("done", value))
        except Exception as error:  # each runtime has classes of its own
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            name = "" if isinstance(error, Refused) else type(error).__name__ + ": "
            print(error, file=sys.stderr, flush=True)
            connection.send(("refused", name + " ".join(lines)[:300]))


def main():
    connection = multiprocessing.connection.Connection(int(sys.argv[2]))
    try:
        serve(sys.argv[1], connection)
    except EOFError:
        pass  # the parent is gone


if __name__ == "__main__":
    main()
