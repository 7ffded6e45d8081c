"""A Dask client behind the interface of `concurrent.futures`."""

import pickle
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from panther.clusters import remote
from panther.errors import InputError
from panther.version import __version__
from panther.workers import SentOnce, Team, read_limit

GPU = "GPU"  # the resource that workers with a GPU announce: dask worker ... --resources GPU=1
LARGE = 1 << 20  # bytes; a function beyond that goes to each worker once, not with every task
LOOK = 10.0  # seconds between looks at who is there
SHARE = 1 / 8  # of a GPU: small tasks are bound by launching kernels, and several side by side keep it busy
DEATHS = 5  # a task was unlucky that often: each time several workers died with it in hand


class ClusterLostError(InputError):
    """The scheduler is gone; nothing that is left can be done."""


@dataclass(frozen=True)
class Workers:
    """Workers of a cluster at one moment."""

    threads: Mapping[str, int]  # by address
    gpus: frozenset[str] = frozenset()  # addresses of those that announce one

    @classmethod
    def of(cls, client: Any) -> "Workers":
        """Ask the scheduler."""
        workers = client.sync(client.scheduler.identity)["workers"]
        gpus = frozenset(address for address, about in workers.items() if about.get("resources", {}).get(GPU, 0) > 0)
        return cls({address: int(about["nthreads"]) for address, about in workers.items()}, gpus)

    def placement(self, gpu: float) -> dict[str, Any]:
        """Words for Dask: work for (a share of) a GPU goes where one is, other work to the others, if there are any."""
        if gpu:
            return {"resources": {GPU: gpu}}
        others = [address for address in self.threads if address not in self.gpus]
        return {"workers": others, "allow_other_workers": True} if others and self.gpus else {}


@dataclass(eq=False)
class DaskTeam(Team):
    """Sends tasks to the workers of a client.

    ``gpu``: to those that announce one. ``in_worker``: the function runs in the Dask worker itself instead of its guarded process, because
    it guards its reading by itself and keeps a network between tasks.
    """

    hand_out = 2e-3

    client: Any
    address: str
    gpu: bool = False
    in_worker: bool = False
    expected: int = 0  # tasks at once, where workers are still to come
    will_have_gpus: bool = False  # the same

    def __post_init__(self) -> None:
        self._inner = self.client.get_executor(pure=False)
        self._sent: WeakKeyDictionary[SentOnce, Any] = WeakKeyDictionary()
        self._guard = threading.Lock()
        self._look()

    @property
    def workers(self) -> int:  # type: ignore[override]
        """Tasks that run at the same time, as of a moment ago; clusters grow and shrink."""
        if time.monotonic() - self._looked > LOOK:
            self._look()
        team = self._team
        slots = team.gpus if self.gpu else team.threads
        count = len(slots) if self.in_worker else len(slots) / SHARE if self.gpu else sum(team.threads.values())
        return max(int(count), self.expected, 1)

    def for_work(self, *, gpu: bool, in_worker: bool = False) -> "DaskTeam":
        """The same cluster for another kind of work."""
        return replace(self, gpu=gpu, in_worker=in_worker)

    @property
    def has_gpus(self) -> bool:
        """Whether workers announce a GPU, or will when they come."""
        return self.will_have_gpus or bool(self._team.gpus)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Have a worker call the function, which may be a `SentOnce`."""
        sent = fn if isinstance(fn, SentOnce) else SentOnce.of(partial(fn, **kwargs))
        outer: Future[Any] = Future()
        self._send(sent, pickle.dumps(args), outer, 1)
        return outer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Have the workers give back what they keep; the client is its owner's."""
        with suppress(Exception):  # a cluster that is gone keeps nothing
            self.client.run(remote.release, on_error="ignore")

    def _send(self, function: SentOnce, arguments: bytes, outer: "Future[Any]", attempt: int) -> None:
        if self.client.status != "running":
            raise self._lost()
        compute = remote.compute_here if self.in_worker else remote.compute_guarded
        where = self._team.placement((1 if self.in_worker else SHARE) if self.gpu else 0)
        inner = self._inner.submit(compute, self._payload(function), arguments, __version__, read_limit(), **where)
        outer.add_done_callback(lambda done: inner.cancel() if done.cancelled() else None)
        inner.add_done_callback(lambda done: self._received(done, function, arguments, outer, attempt))

    def _payload(self, function: SentOnce) -> Any:
        """The function's bytes, or the task that brings them."""
        with self._guard:
            if function not in self._sent:
                packed = pickle.dumps(remote.OnPickles(function.payload))
                # large ones are a task's result, not scattered: should the worker that has it die, the scheduler has it done again
                large = len(packed) >= LARGE
                self._sent[function] = self.client.submit(remote.same, packed, pure=False) if large else packed
            return self._sent[function]

    def _received(
        self, inner: "Future[Any]", function: SentOnce, arguments: bytes, outer: "Future[Any]", attempt: int
    ) -> None:
        if attempt == 1 and not outer.set_running_or_notify_cancel():
            return
        try:
            if inner.cancelled():
                raise self._lost()
            value = inner.result()
            if isinstance(value, Exception):
                raise value
            outer.set_result(pickle.loads(value))
        except remote.OtherVersionError as error:
            sentence = f"A worker of {self.address} runs panther-wsi {error}, this command {__version__}; install the same everywhere."
            outer.set_exception(InputError(sentence))
        except ImportError as error:
            sentence = f"A worker of {self.address} cannot import what it needs ({error}); install the same packages everywhere."
            outer.set_exception(InputError(sentence))
        except Exception as error:
            # Dask's: several workers died one after the other with the task in hand, or waiting. It runs in a guarded process and
            # cannot have been the reason, as long as that is not always so.
            unlucky = type(error).__name__ == "KilledWorker" or isinstance(
                error, BrokenExecutor
            )  # a machine without memory
            if unlucky and attempt < DEATHS:
                with suppress(ClusterLostError):
                    self._send(function, arguments, outer, attempt + 1)
                    return
            outer.set_exception(error)

    def _lost(self) -> ClusterLostError:
        return ClusterLostError(
            f"The Dask scheduler at {self.address} went away; what was finished is kept: start it and its workers again, then run "
            "the command again to go on."
        )

    def _look(self) -> None:
        try:
            self._team = Workers.of(self.client)
        except Exception as error:  # whatever a comm that closes raises
            raise self._lost() from error
        self._looked = time.monotonic()
